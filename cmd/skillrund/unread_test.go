package main

import (
	"sync"
	"testing"

	"golang.org/x/net/http2"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
)

// A daemon with 128 MiB of memory survives 3,200 answers of about 100 KiB that their client does
// not read, because its flow-control windows stay empty. It still answers other requests.
func TestFloodOfUnreadAnswers(t *testing.T) {
	t.Parallel()
	const connections, streams = 32, 100
	dir := newDir(t)
	writeHostileSkill(t, dir)
	// The first start unpacks the embedded Python, which would need as much memory again.
	startDaemonIn(t, dir, "").stop()
	d := withMemory(t, dir, "128M", "")
	t.Cleanup(d.stop)
	ask, err := proto.Marshal(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "skillrun.v1.ToolService",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var flood sync.WaitGroup
	for range connections {
		h := dialH2(t, d)
		h.write(func(f *http2.Framer) error {
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		})
		flood.Go(func() {
			for range streams {
				id := h.request(reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName)
				h.message(id, 0, ask, true)
				h.until("answered", func() bool { return h.streams[id] != nil && h.streams[id].header[":status"] != "" })
			}
		})
	}
	flood.Wait()
	d.works()
	t.Logf("the daemon has %d MiB of memory", d.residentBytes()>>20)
}
