from pathlib import PurePosixPath


def inside(name):
    """Refuses a member that would be written outside of the target."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise SystemExit(f"Error: {name} leaves the target")
    return name
