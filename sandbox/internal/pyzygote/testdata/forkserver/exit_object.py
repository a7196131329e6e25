class Reason:
    def __str__(self):
        return "a reason of its own"

raise SystemExit(Reason())
