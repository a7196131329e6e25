package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skillrun/skillrun/internal/ingress"
)

// Paths of the server's URL. LivePath and ReadyPath are for probes of Kubernetes and load balancers.
const (
	Path      = "/metrics"
	LivePath  = "/livez"
	ReadyPath = "/readyz"
)

// Bounds on requests. Several Prometheus servers may ask at the same time. One answer takes
// milliseconds.
const (
	maxScrapes     = 8
	scrapeTimeout  = 10 * time.Second
	idleTimeout    = 5 * time.Minute // more than a usual scrape interval, so that connections stay open
	maxHeaderBytes = 16 << 10
)

// A Server answers Prometheus.
type Server struct {
	http *http.Server
	log  *slog.Logger
}

// NewServer makes a Server. It asks no caller for credentials. ready returns whether the daemon takes
// executions, and the text that the answer to ReadyPath has.
func (m *Metrics) NewServer(ready func() (bool, string), log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, ownHost(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	})))
	mux.HandleFunc("GET "+LivePath, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "live\n") })
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		code := http.StatusOK
		yes, text := ready()
		if !yes {
			code = http.StatusServiceUnavailable
		}
		answer(w, code, text)
	})
	return &Server{log: log, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: ingress.HelloTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: ingress.ConnContext,
		// Errors of bad requests and broken connections. The caller causes them.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// ownHost refuses requests of web pages to h: the metrics have the names of tenants. Such a page can read
// an answer only if its DNS name points to this machine, so that its requests have that name as Host.
func ownHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := ingress.RefuseHost(r); text != "" {
			answer(w, http.StatusForbidden, text+"\n")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// answer sends a text. An error means that the caller went away.
func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	io.WriteString(w, text)
}

// Serve answers requests on l until Stop, and closes l. It returns nil after a Stop.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(ingress.Listen(l, ingress.Limits{}, s.log))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop accepts no new request, and waits for running requests until ctx is done.
func (s *Server) Stop(ctx context.Context) {
	if err := s.http.Shutdown(ctx); err != nil {
		s.http.Close() // closes the remaining connections; an error has no further use
	}
}
