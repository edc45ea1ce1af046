"""How much is accepted: far more than an experiment needs, and little enough to be refused at once."""

from __future__ import annotations

# A YAML file or a value of `--set`.
YAML_BYTES = 2**18
YAML_NODES = 20_000  # values and keys, each as often as aliases repeat it
YAML_DEPTH = 20  # mappings and lists inside each other

# An experiment.
WHOLE_NUMBER = 2**63 - 1
NAME_BYTES = 120  # of an experiment, a row, a file or a folder, so that there is room for endings
NOTES = 100
NOTE_LETTERS = 1_000
TEXT_LETTERS = 4_000  # of any other text, such as a path
SEEDS = 1_000
METHODS = 1_000
GRID_POINTS = 4_096
SEGMENTS = 100_000  # of a stream: its domains, as often as they come
SLOTS = 10_000
REPEATS = 1_000  # of a sample
VIEWS = 1_000
ITERATIONS = 100_000
VECTORS = 2**18  # that a method keeps
WIDTH = 2**13  # of a layer that a method adds
SIDE = 10_000  # pixels
EPOCHS = 100_000
CLASSES = 1_000_000

# A message.
VALUE_LETTERS = 80
LINE_LETTERS = 300
PROBLEMS = 20

# A file.
PIXELS = 178_956_970  # of a picture; Pillow's own limit
UNPACKED = 2**28  # bytes that every file may unpack to, however short it is
RATIO = 200  # more than that, only so many times its own length
WHOLE = 2**30  # bytes of a file that is read as a whole: texts and pickles
BATCH = 2**30  # bytes of a batch of samples without labels
PICKLED = 2**26  # bytes of the names and shapes in a file of weights
