package image

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// pullVar makes the test binary pull an image and wait to be killed.
const pullVar = "_IMAGE_TEST_PULL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(pullVar); dir != "" {
		s, err := Open(context.Background(), Config{Dir: dir})
		if err == nil {
			_, err = s.Get(context.Background(), Source{Reference: os.Args[1], Credentials: None})
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
