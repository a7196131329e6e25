package server

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

func TestStdinPassesEverythingOn(t *testing.T) {
	in := newStdin()
	var want bytes.Buffer
	go func() {
		defer in.Close()
		for i := range 50 {
			piece := bytes.Repeat([]byte{byte(i)}, i*1000)
			want.Write(piece)
			in.Write(piece)
		}
	}()
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, want.Len())
	}
}

// A sender waits once a buffer's worth waits, and goes on as the program reads.
func TestStdinHoldsTheSenderUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newStdin()
		written := 0
		go func() {
			for {
				n, err := in.Write(make([]byte, stdinBuffer/2))
				if err != nil {
					return
				}
				written += n
			}
		}()
		synctest.Wait()
		if written != stdinBuffer {
			t.Errorf("%d bytes wait, want %d", written, stdinBuffer)
		}
		if n, err := io.ReadFull(in, make([]byte, stdinBuffer/2)); n != stdinBuffer/2 || err != nil {
			t.Fatalf("read %d, %v", n, err)
		}
		synctest.Wait()
		if want := stdinBuffer * 3 / 2; written != want {
			t.Errorf("%d bytes were taken after a read, want %d", written, want)
		}
		in.Close() // or the writer would outlive the test
	})
}

// The end of a call frees a waiting sender, and the program still gets the earlier input.
func TestStdinClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newStdin()
		if _, err := in.Write(make([]byte, stdinBuffer)); err != nil {
			t.Fatal(err)
		}
		var blocked error
		go func() { _, blocked = in.Write([]byte("more")) }()
		synctest.Wait()
		in.Close()
		in.Close()
		synctest.Wait()
		if !errors.Is(blocked, io.ErrClosedPipe) {
			t.Errorf("blocked writer: got %v, want %v", blocked, io.ErrClosedPipe)
		}
		got, err := io.ReadAll(in)
		if len(got) != stdinBuffer || err != nil {
			t.Errorf("read %d, %v; want what was written before", len(got), err)
		}
	})
}

func TestStdinFreesAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newStdin()
		var err error
		go func() { _, err = in.Read(make([]byte, 1)) }()
		synctest.Wait()
		in.Close()
		synctest.Wait()
		if !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
	})
}
