"""collect_documentation, of a part of each library: all take seven seconds."""

from bert_tf.data import collect_documentation

from bert_tf import program

_PARTS = {"numpy": "lib", "keras": "src/layers"}
_library_folder = collect_documentation.library_folder


def _part_folder(name):
    folder = _library_folder(name) / _PARTS[name]
    assert folder.is_dir()
    return folder


if __name__ == "__main__":
    collect_documentation.library_folder = _part_folder
    program.run(collect_documentation.main)
