"""All policies, by question: the parameters of each policy, and its registration.

A module is named like the package of the policies that it describes, and imports none of them (some load torch): so
choices are checked and described without them. Every parameter has a type, a range, a default and a sentence; a bare
name is a complete choice.
"""
