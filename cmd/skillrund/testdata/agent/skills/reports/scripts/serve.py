"""Waits for a browser that never comes."""
import threading

print("Serving on port 8000", flush=True)
threading.Event().wait()
