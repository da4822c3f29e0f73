"""Programs to export, check and convert models, installed as `bert_tf.export`.

Python binds `bert_tf.export`, the public function, to this package as soon as
one of its programs is imported. So the package can be called like the function.
"""

import sys
import types


class _CallablePackage(types.ModuleType):
    def __call__(self, *args, **kwargs):
        from bert_tf.serving import exporter

        return exporter.export(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
