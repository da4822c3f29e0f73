"""Shows a model in a browser of this machine: pages, answers, server.

It answers one request after the other and is meant for looking only. To serve a
model, use TensorFlow Serving: see `bert_tf.serving`.
"""
