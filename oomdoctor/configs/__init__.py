"""Config files as text: nodes with their places, words of a command, the kind of a file, a framework's words.

The ground for reading them (`sources/config/`) and for changing them (`edits/`).
"""
