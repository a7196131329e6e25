package disktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Device is a file whose reads and writes the test can delay or fail. A file system on a loop device over it has a
// slow or failing disk. It does the work of the device mapper's targets delay, flakey and error, which many kernels lack.
// The file is the only file of a FUSE file system (fuse(4)), which the test serves.
type Device struct {
	Path string // for mount -o loop
	file *os.File
	fuse int // /dev/fuse

	delay     atomic.Int64 // of each request
	faulty    atomic.Pointer[func() bool]
	failed    atomic.Int64
	answering sync.WaitGroup // the goroutines that answer
}

// NewDevice makes a Device of an existing file. It lives until the test ends. NewDevice skips the test if the kernel
// has no FUSE.
func NewDevice(t testing.TB, file string) *Device {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("/dev/fuse: %v: a disk that fails needs FUSE", err)
	}
	d := &Device{Path: file + ".device", fuse: fd}
	if d.file, err = os.OpenFile(file, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The root of the file system is a regular file, so it is mounted on one.
	options := fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0,max_read=%d", fd, deviceRequest)
	if err := unix.Mount("skillrun-test", d.Path, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.serve() }()
	t.Cleanup(func() {
		// MNT_FORCE ends all requests and serve, MNT_DETACH does not wait for the loop device.
		if err := unix.Unmount(d.Path, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.Path, err)
			return
		}
		if err := <-served; err != nil {
			t.Errorf("%s: %v", d.Path, err)
		}
	})
	if _, err := os.Stat(d.Path); err != nil { // the kernel asks for the size now
		t.Fatal(err)
	}
	return d
}

// Delay makes each later read, write and flush take so much longer.
func (d *Device) Delay(by time.Duration) { d.delay.Store(int64(by)) }

// Fail makes each later write and flush fail with EIO if f returns true. f may be called at the same time by several
// goroutines. Nil: none fails.
func (d *Device) Fail(f func() bool) {
	if f == nil {
		d.faulty.Store(nil)
		return
	}
	d.faulty.Store(&f)
}

// Failed returns the number of requests that have failed by Fail.
func (d *Device) Failed() int64 { return d.failed.Load() }

// deviceRequest bounds the bytes of one read or write.
const deviceRequest = 128 << 10

// The protocol of FUSE, from include/uapi/linux/fuse.h of Linux.
const (
	fuseForget      = 2
	fuseGetattr     = 3
	fuseSetattr     = 4
	fuseOpen        = 14
	fuseRead        = 15
	fuseWrite       = 16
	fuseRelease     = 18
	fuseFsync       = 20
	fuseFlush       = 25
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseDestroy     = 38
	fuseBatchForget = 42

	fuseMajor, fuseMinor = 7, 31
	fuseBigWrites        = 1 << 5
	fuseMaxPages         = 1 << 22
	fuseDirectIO         = 1 << 0
	fuseInHeader         = 40
)

var endian = binary.NativeEndian

// serve answers requests until the file system is unmounted.
func (d *Device) serve() error {
	buffer := make([]byte, deviceRequest+4096)
	for {
		n, err := unix.Read(d.fuse, buffer)
		switch {
		case err == unix.ENODEV, err == unix.ECONNABORTED: // unmounted; ECONNABORTED: while the kernel gave a request
			d.answering.Wait()
			return errors.Join(unix.Close(d.fuse), d.file.Close())
		case err == unix.EINTR, err == unix.EAGAIN, err == unix.ENOENT: // ENOENT: the request was interrupted
			continue
		case err != nil:
			return err
		}
		request := append([]byte(nil), buffer[:n]...)
		d.answering.Go(func() { d.answer(request) })
	}
}

// answer does one request.
func (d *Device) answer(request []byte) {
	opcode, unique := endian.Uint32(request[4:]), endian.Uint64(request[8:])
	in := request[fuseInHeader:]
	var out []byte
	var err error
	switch opcode {
	case fuseForget, fuseBatchForget, fuseInterrupt: // these have no answer
		return
	case fuseInit:
		out = make([]byte, 64)
		endian.PutUint32(out, fuseMajor)
		endian.PutUint32(out[4:], fuseMinor)
		endian.PutUint32(out[8:], deviceRequest) // max_readahead, in bytes
		endian.PutUint32(out[12:], fuseBigWrites|fuseMaxPages)
		endian.PutUint32(out[20:], deviceRequest)
		endian.PutUint16(out[28:], deviceRequest/512) // a page may have one block of the request
	case fuseGetattr, fuseSetattr:
		out, err = d.attributes()
	case fuseOpen:
		out = make([]byte, 16)
		endian.PutUint32(out[8:], fuseDirectIO) // the kernel's cache would split writes
	case fuseRead:
		time.Sleep(time.Duration(d.delay.Load()))
		out, err = d.read(in)
	case fuseWrite, fuseFsync:
		time.Sleep(time.Duration(d.delay.Load()))
		if f := d.faulty.Load(); f != nil && (*f)() {
			d.failed.Add(1)
			err = unix.EIO
		} else if opcode == fuseWrite {
			out, err = d.write(in)
		}
		// A flush does not sync the file: its writes are in the kernel's memory, and survive the end of this process.
	case fuseFlush, fuseRelease, fuseDestroy:
	default:
		err = unix.ENOSYS
	}
	d.send(unique, out, err)
}

func (d *Device) send(unique uint64, out []byte, err error) {
	answer := make([]byte, 16, 16+len(out))
	if err != nil {
		number := unix.EIO
		errors.As(err, &number)
		endian.PutUint32(answer[4:], uint32(-int32(number)))
	} else {
		answer = append(answer, out...)
	}
	endian.PutUint32(answer, uint32(len(answer)))
	endian.PutUint64(answer[8:], unique)
	_, _ = unix.Write(d.fuse, answer) // it fails if the kernel has dropped the request
}

func (d *Device) attributes() ([]byte, error) {
	info, err := d.file.Stat()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 104)
	endian.PutUint64(out, 3600) // the kernel may keep them for so many seconds
	endian.PutUint64(out[16:], 1)
	endian.PutUint64(out[24:], uint64(info.Size()))
	endian.PutUint64(out[32:], uint64(info.Size()/512))
	endian.PutUint32(out[76:], unix.S_IFREG|0o600)
	endian.PutUint32(out[80:], 1)
	endian.PutUint32(out[96:], 4096)
	return out, nil
}

func (d *Device) read(in []byte) ([]byte, error) {
	offset, size := int64(endian.Uint64(in[8:])), endian.Uint32(in[16:])
	out := make([]byte, size)
	n, err := d.file.ReadAt(out, offset)
	if n > 0 || err == nil {
		return out[:n], nil
	}
	return nil, nil // beyond the end
}

func (d *Device) write(in []byte) ([]byte, error) {
	offset, size := int64(endian.Uint64(in[8:])), endian.Uint32(in[16:])
	n, err := d.file.WriteAt(in[40:40+size], offset)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 8)
	endian.PutUint32(out, uint32(n))
	return out, nil
}
