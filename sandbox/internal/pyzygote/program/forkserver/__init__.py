"""The fork server of Python zygotes. sitecustomize.py has the theory of operation."""
