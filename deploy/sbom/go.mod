// A module of its own, so that it never weighs on the daemon's.
module github.com/skillrun/skillrun/deploy/sbom

go 1.26

require github.com/CycloneDX/cyclonedx-go v0.12.0
