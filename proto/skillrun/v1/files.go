package skillrunv1

import (
	_ "embed"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptors is a FileDescriptorSet with the files of this package and their comments, in an
// order in which each file comes after its imports. Generated code leaves comments out. make
// generate writes the file.
//
//go:embed descriptors.binpb
var descriptors []byte

// Files finds descriptors like [protoregistry.GlobalFiles], but the descriptors of this package have
// comments. So a tool that uses server reflection can show the API reference. The comments are
// decoded at the first call.
var Files protodesc.Resolver = files{}

type files struct{}

// commented has the files of this package. A set that can't be decoded is a defect of the build.
var commented = sync.OnceValue(func() *protoregistry.Files {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptors, &set); err != nil {
		panic(fmt.Sprintf("skillrunv1: descriptors: %v", err))
	}
	own := new(protoregistry.Files)
	for _, m := range set.GetFile() {
		file, err := protodesc.NewFile(m, resolver{own})
		if err == nil {
			err = own.RegisterFile(file)
		}
		if err != nil {
			panic(fmt.Sprintf("skillrunv1: descriptors: %v", err))
		}
	}
	return own
})

func (files) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return resolver{commented()}.FindFileByPath(path)
}

func (files) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return resolver{commented()}.FindDescriptorByName(name)
}

// resolver looks into own first, and then into the registry of the program.
type resolver struct{ own *protoregistry.Files }

func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := r.own.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := r.own.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
