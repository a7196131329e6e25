import _thread, json, os


class Last:
    def __del__(self, write=os.write):
        write(1, b"gone\n")


lock = _thread.allocate_lock()
lock.acquire()


def work():
    mine = Last()
    lock.release()
    _thread.exit()


_thread.start_new_thread(work, ())
lock.acquire()
while _thread._count():  # else its Last ends before this program does, or with it
    pass
json.lock = _thread.allocate_lock()
json.x = Last()
raise SystemExit(300)
