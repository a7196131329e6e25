package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// listen opens every configured listener, or none.
func listen(c config) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
		}
	}()
	if c.Listen.Unix != "" {
		l, err := listenUnix(c.Listen.Unix, fs.FileMode(c.Listen.UnixMode))
		if err != nil {
			return listeners, fmt.Errorf("listen.unix: %w", err)
		}
		listeners = append(listeners, l)
	}
	if c.Listen.TCP != "" {
		l, err := net.Listen("tcp", c.Listen.TCP)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%s: the port is in use; stop what uses it or choose another", c.Listen.TCP)
		}
		if err != nil {
			return listeners, fmt.Errorf("listen.tcp: %w", err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// listenUnix replaces the socket of a daemon that died, never one that answers.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s: exists and is not a socket; remove it or choose another path", path)
	default:
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: another daemon answers there; stop it or choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Nobody may connect before the mode is right.
	old := syscall.Umask(0o777)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
