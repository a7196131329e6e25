import threading
forever = threading.Event()
threading.Thread(target=forever.wait, daemon=True).start()
print("main ends", threading.active_count())
