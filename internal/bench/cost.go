package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// costSamples is the number of requests to each of the three daemons of a cost.
const costSamples = 1000

// sampledTrace is a trace context (W3C Trace Context) with the flag sampled, so that the daemon records every span.
const sampledTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traces compares a daemon that sends all traces with one that sends none.
func traces(r *run, rows rowSet) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var bytes atomic.Int64
	receiver := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		// To a message without fields, all fields of another message are unknown. So the receiver takes no time to
		// decode spans.
		m := &pb.GetBudgetRequest{}
		if err := s.RecvMsg(m); err != nil {
			return err
		}
		bytes.Add(int64(len(m.ProtoReflect().GetUnknown())))
		return s.SendMsg(&pb.GetBudgetRequest{}) // on the wire an empty answer, too
	}))
	defer receiver.Stop()
	go receiver.Serve(l)
	ctx := metadata.AppendToOutgoingContext(r.ctx, "traceparent", sampledTrace)
	err = r.cost(ctx, "traces", rows, fmt.Sprintf("tracing: {endpoint: 'http://%s'}\n", l.Addr()), "")
	if err == nil && bytes.Load() == 0 {
		err = errors.New("the daemon has sent no spans")
	}
	return err
}

// auditLog compares a daemon with the audit log, which is the default, with one without it.
func auditLog(r *run, rows rowSet) error {
	return r.cost(r.ctx, "audit", rows, "", "audit: {enabled: false}\n")
}

// cost compares daemons with and without a part that the configuration turns on, for the program `true`. It fills two
// rows: name-true has the time of a request, name-processor the processor time of the daemon for one. Three daemons
// take turns: one with the part and two without it. The ratio of the two equal ones is the noise of the rows: two
// processes of one program also differ a little, for example in the places of their memory. The order of a round
// changes, because the daemon that was asked before still removes its sandbox.
func (r *run) cost(ctx context.Context, name string, rows rowSet, with, without string) (err error) {
	names, configs := []string{"with", "without", "without again"}, []string{with, without, without}
	daemons := make([]*daemon, len(configs))
	for i := range configs {
		if daemons[i], err = r.startNew(name, configs[i]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, daemons[i].stop()) }()
	}
	var subjects []*subject
	for i, d := range daemons {
		subjects = append(subjects, &subject{name: names[i], run: func() error { return trueProgram.request(ctx, d.client) }})
	}
	if err := r.warm(subjects); err != nil {
		return err
	}
	used, times := make([]float64, len(daemons)), make([][]float64, len(daemons))
	for i, d := range daemons {
		before, err := processorTime(d.pid())
		if err != nil {
			return err
		}
		used[i] = -before
	}
	n := r.samples(costSamples)
	for round := range n {
		for turn := range daemons {
			i := (round + turn*(1+round%2)) % len(daemons) // each of the six orders comes equally often
			t, err := timed(subjects[i].run)
			if err != nil {
				return err
			}
			times[i] = append(times[i], t)
		}
	}
	for i, d := range daemons {
		after, err := processorTime(d.pid())
		if err != nil {
			return err
		}
		used[i] = (used[i] + after) / float64(n)
	}
	r.report.keep(name+"-true", "ms", subjects, times)
	row := rows[name+"-true"]
	row.setPairs(times[0], times[1], 0.5)
	row.Noise = number(median(ratios(times[2], times[1])))
	row = rows[name+"-processor"]
	row.setRatio(used[0], used[1], n)
	row.Noise = number(used[2] / used[1])
	return nil
}

// processorTime returns the processor time of a process in milliseconds, including its threads that have ended. The
// kernel's clock of a process has the number of clock_getcpuclockid(3).
func processorTime(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return float64(used.Nano()) / 1e6, nil
}
