package image

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Limits on a manifest.
const (
	maxLayers = 127 // the limit of Docker and other engines
	// Bytes of an image's configuration, which the library holds in memory.
	maxConfig = 4 << 20
)

// stallPatience is how long a registry may send nothing while a layer is read. A layer's total time
// has no limit, because large layers over slow lines are normal; the caller limits the time of all
// pulls.
const stallPatience = time.Minute

var thisPlatform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// layerTypes are the supported types of layers. Other types are not archives, or refer to
// other places to fetch from.
var layerTypes = map[types.MediaType]bool{
	types.DockerLayer: true, types.DockerUncompressedLayer: true,
	types.OCILayer: true, types.OCILayerZStd: true, types.OCIUncompressedLayer: true,
}

// fetch pulls an image and unpacks it into root, which must be empty. The registry library
// checks the manifest against the reference's digest and each layer against the manifest.
func (s *Store) fetch(ctx context.Context, source Source, root string) error {
	began := time.Now()
	transport := newTransport()
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log := s.config.Log.With("image", source.Reference)
	log.Info("pulling an image")
	layers, err := layersOf(source, source.options(ctx, transport)...)
	if err != nil {
		return because(ctx, err)
	}
	u, err := newUnpacker(root, s.config.Bytes, s.config.Files)
	if err != nil {
		return err
	}
	defer u.close()
	for i, l := range layers {
		if err := s.layer(ctx, cancel, u, l); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(layers), because(ctx, err))
		}
		log.Info("layer unpacked", "layer", i+1, "of", len(layers), "bytes", u.bytes, "files", u.files)
	}
	log.Info("image unpacked", "bytes", u.bytes, "files", u.files, "took_ms", time.Since(began).Milliseconds())
	return nil
}

// because returns the reason why ctx ended, if it has ended, else err.
// Without it a stall or a timeout would be reported as "context canceled".
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("the pull took longer than allowed: %w", cause)
		}
		return cause
	}
	return err
}

// layersOf returns the layers of an image, lowest first.
// d.Image picks the image for this platform if the reference is an index. Everything is
// checked before the first byte of a layer is requested.
func layersOf(source Source, options ...remote.Option) ([]v1.Layer, error) {
	ref, err := name.NewDigest(source.Reference)
	if err != nil {
		return nil, err
	}
	d, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	img, err := d.Image()
	if err != nil {
		return nil, err
	}
	if err := fits(img); err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 || len(layers) > maxLayers {
		return nil, fmt.Errorf("%d layers; want 1 to %d", len(layers), maxLayers)
	}
	for i, l := range layers {
		kind, err := l.MediaType()
		if err != nil {
			return nil, err
		}
		if !layerTypes[kind] {
			return nil, fmt.Errorf("layer %d of %d: its type %q is not supported", i+1, len(layers), kind)
		}
	}
	return layers, nil
}

// fits refuses an image for another operating system or architecture.
// An image without an index is taken as it comes, so its configuration has to say the
// platform. An empty field matches: some builders leave them out.
func fits(img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	if m.Config.Digest == (v1.Hash{}) {
		return errors.New("its manifest names no configuration (config), so it is not a container image")
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return fmt.Errorf("its configuration has %d bytes; at most %d", m.Config.Size, maxConfig)
	}
	c, err := img.ConfigFile()
	if err != nil {
		return fmt.Errorf("its configuration: %w", err)
	}
	if c.OS != "" && c.OS != thisPlatform.OS || c.Architecture != "" && c.Architecture != thisPlatform.Architecture {
		return fmt.Errorf("the image is for %s/%s, and this machine is %s", c.OS, c.Architecture, thisPlatform)
	}
	return nil
}
