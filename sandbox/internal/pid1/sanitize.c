/* The options of AddressSanitizer, in a build with it (make test-sanitize). They are part of
 * the program, because init and the zygote start with an empty environment. */

#ifdef __SANITIZE_ADDRESS__

const char *__asan_default_options(void);

/* The search for leaks at exit traces the process, which no sandbox permits. Init sets the
 * limit of core dumps itself, and the probe dies by SIGSEGV on purpose. */
const char *__asan_default_options(void)
{
	return "detect_leaks=0:abort_on_error=1:disable_coredump=0:handle_segv=0";
}

#endif
