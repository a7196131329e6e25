package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skillrun/skillrun/internal/ingress"
)

// Path is where Prometheus finds the metrics.
const Path = "/metrics"

// Bounds on requests. Some Prometheus servers ask at once; one answer takes milliseconds.
const (
	maxScrapes     = 8
	scrapeTimeout  = 10 * time.Second
	idleTimeout    = 5 * time.Minute // more than a usual scrape interval, so that connections stay
	maxHeaderBytes = 16 << 10
)

// A Server answers Prometheus.
type Server struct {
	http *http.Server
	log  *slog.Logger
}

// NewServer makes a Server. It asks no caller for credentials.
func (m *Metrics) NewServer(log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	}))
	return &Server{log: log, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: ingress.HelloTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// Of bad requests and broken connections. They are the caller's own doing.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Serve answers on l until Stop, and closes l. A stop is no error.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(ingress.Listen(l, s.log))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop takes no new request, and waits for those under way until ctx is done.
func (s *Server) Stop(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() // breaks what is left; its errors say no more than that
	}
}
