"""The contract as protoc and its grpc plugin generate it: messages and stubs."""
