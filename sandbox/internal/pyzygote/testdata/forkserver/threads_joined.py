import threading
ready = threading.Event()


def work():
    ready.wait()
    print("worker at the end", threading.main_thread().is_alive())


threading.Thread(target=work).start()
print("main ends")
ready.set()
