"""For training programs: a script becomes a run of segments by a handful of lines.

`longhaul.training.torch` serves PyTorch; nothing is imported here, so that no library is loaded unasked.
"""
