"""A model looked at in a browser of this machine: pages, answers, server.

For looking, one request after the other. TensorFlow Serving is for serving: see
`bert_tf.serving`.
"""
