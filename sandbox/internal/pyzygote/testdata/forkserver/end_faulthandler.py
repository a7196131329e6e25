import faulthandler, json, sys
json.f = open("fault.log", "w")
faulthandler.enable(json.f)
faulthandler.dump_traceback_later(1000, file=json.f)
faulthandler.dump_traceback(all_threads=False)


class Dumps:
    def __del__(self, dump=faulthandler.dump_traceback, err=sys.stderr):
        dump(err)


kept, json.x = Dumps(), Dumps()
print("end")
