"""Files that hold tensors under names: safetensors, and TF1 checkpoints.

They know no model. Each has these attributes:

    file_format     GOOGLE or HUGGING_FACE: whose names the tensors have
    folder          where configuration and vocabulary lie
    weights_path    the file that errors of missing weights name
    slots_path      and of missing moments
    shapes          {name: shape} of the weights
    ignored         {name: shape} of what is no weight
    slots           {name: shape} of Adam's moments
    global_step     the number of training steps, or None
    file_of(name)   the path of the file that holds a tensor
    read(name)      a tensor as it is stored, a float32 array
"""

GOOGLE = "google"
HUGGING_FACE = "hugging_face"
# Hugging Face's with our task.json.
BERT_TF = "bert_tf"
# What a checkpoint can be converted to.
FORMATS = (GOOGLE, HUGGING_FACE, BERT_TF)

# Adam's moments lie under the weight's name with one of these.
SLOTS = ("/adam_m", "/adam_v")
GLOBAL_STEP = "global_step"
