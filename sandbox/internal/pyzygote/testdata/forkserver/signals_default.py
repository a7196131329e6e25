import signal
for s in sorted(signal.valid_signals()):
    print(s, signal.getsignal(s))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1))
