"""All programs of `strangers.py` and the files beside it. `PLAIN` ones take the module `torch`; `COMPILED` ones also whether what they train is
compiled."""

import strangers
import strangers_generators
import strangers_graphs
import strangers_language
import strangers_masks
import strangers_modules
import strangers_public
import strangers_repositories
import strangers_sampling
import strangers_science
import strangers_scripts
import strangers_sequences
import strangers_stumbled
import strangers_trainers
import strangers_training
import strangers_tutorials
import strangers_vision

PLAIN = [
    program
    for file in (
        strangers, strangers_stumbled, strangers_vision, strangers_sequences, strangers_sampling, strangers_science, strangers_training,
        strangers_modules, strangers_graphs, strangers_masks,
    )
    for program in file.PROGRAMS
]  # fmt: skip
COMPILED = [
    program
    for file in (
        strangers_public, strangers_scripts, strangers_repositories, strangers_language, strangers_generators, strangers_tutorials,
        strangers_trainers,
    )
    for program in file.PROGRAMS
]  # fmt: skip
