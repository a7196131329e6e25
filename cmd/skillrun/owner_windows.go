package main

import "os"

// onlyOurs accepts every file: Windows keeps a user's directories from other users by access lists.
func onlyOurs(*os.File) error { return nil }

// exposed reports nothing, for the same reason.
func exposed(string) bool { return false }
