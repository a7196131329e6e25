package skill

import _ "google.golang.org/grpc"
