import os, socket
print(socket.gethostname(), sorted(os.listdir("/")), [i[1] for i in socket.if_nameindex()])
print(open("/proc/self/oom_score_adj").read(), os.stat("/proc/self").st_uid, os.access("/proc/self/mem", os.R_OK))
