"""The files that the checks look at, each read once."""

import dataclasses
import os

# Folders that are no part of the sources.
_SKIPPED_FOLDERS = {".git", ".device", "__pycache__", "node_modules"}
_SKIPPED_FILES = {"compile_commands.json", "user.bazelrc"}
_CPP = (".h", ".cc", ".cu", ".cuh")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int  # 1-based; 0: the file as a whole
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}" if self.line else \
            f"{self.path}: {self.message}"


class SourceTree:
    """Paths are relative to the root, with '/', in order."""

    def __init__(self, root):
        self.root = root
        self.paths = sorted(self._walk())
        self._texts = {}

    def _walk(self):
        for folder, folders, files in os.walk(self.root):
            top = folder == self.root
            folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS
                          and not (top and name.startswith("bazel-"))]
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.root)
                if name not in _SKIPPED_FILES and not os.path.islink(os.path.join(folder, name)):
                    yield path

    def text(self, path):
        """None for a file that is not UTF-8 text."""
        if path not in self._texts:
            try:
                with open(os.path.join(self.root, path), encoding="utf-8") as file:
                    self._texts[path] = file.read()
            except UnicodeDecodeError:
                self._texts[path] = None
        return self._texts[path]

    def is_executable(self, path):
        return os.access(os.path.join(self.root, path), os.X_OK)

    def cpp_paths(self):
        return [path for path in self.paths if path.endswith(_CPP)]

    def named(self, *names):
        return [path for path in self.paths if os.path.basename(path) in names]
