/* Children that only make system calls, for userns.go. See userns.c. */
#ifndef SKILLRUN_USERNS_H
#define SKILLRUN_USERNS_H

long skillrun_userns(unsigned owner, const char *offsets);
long skillrun_try_unshare(long flags);
long skillrun_try_proc(const char *dir);

#endif
