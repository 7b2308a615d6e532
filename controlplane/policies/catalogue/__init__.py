"""All policies by kind: the parameters of each policy, and its registration.

A module has the name of the package whose policies it describes, and imports none of them (some import torch), so that
choices can be checked and described without them. Every parameter has a type, a range, a default and a description; a
bare name is a complete choice.
"""
