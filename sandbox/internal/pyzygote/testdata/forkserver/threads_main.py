import threading
m = threading.main_thread()
print(threading.current_thread() is m, m.name, m.ident == threading.get_ident(), m.daemon, threading.enumerate() == [m], m.is_alive())
import os
print(m.native_id == os.getpid(), threading.get_native_id() == os.getpid(), len(os.listdir("/proc/self/task")))
