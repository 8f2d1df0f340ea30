package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// service is one method of each kind. Its messages are strings.
var service = grpc.ServiceDesc{
	ServiceName: "lab.Talk", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: say}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Count", ServerStreams: true, Handler: count},
		{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: chat},
		{StreamName: "Wait", ServerStreams: true, Handler: wait},
	},
}

type text = wrapperspb.StringValue

func say(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var in text
	if err := decode(&in); err != nil {
		return nil, err
	}
	if in.Value == "fail" {
		grpc.SetTrailer(ctx, metadata.Pairs("why", "asked to"))
		return nil, status.Error(codes.FailedPrecondition, "as was asked: 100 % ü")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return wrapperspb.String(fmt.Sprintf("%s, with %q", in.Value, md.Get("authorization"))), nil
}

func count(_ any, s grpc.ServerStream) error {
	var in text
	if err := s.RecvMsg(&in); err != nil {
		return err
	}
	for i := range 5 {
		if err := s.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
			return err
		}
	}
	s.SetTrailer(metadata.Pairs("sum", "10"))
	return nil
}

func chat(_ any, s grpc.ServerStream) error {
	for {
		var in text
		if err := s.RecvMsg(&in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(wrapperspb.String("re: " + in.Value)); err != nil {
			return err
		}
	}
}

// wait says that the client's deadline has arrived, and nothing more until the client cancels.
func wait(_ any, s grpc.ServerStream) error {
	if _, ok := s.Context().Deadline(); !ok {
		return status.Error(codes.Internal, "no deadline has arrived")
	}
	if err := s.SendMsg(wrapperspb.String("has a deadline")); err != nil {
		return err
	}
	<-s.Context().Done()
	return status.FromContextError(s.Context().Err()).Err()
}

// grpcOrigin serves on the socket it has inherited as descriptor 3, with a certificate and its key from files.
func grpcOrigin(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: clients grpc-origin CERTIFICATE KEY 3<SOCKET")
	}
	certificate, err := credentials.NewServerTLSFromFile(args[0], args[1])
	if err != nil {
		return err
	}
	ln, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(certificate))
	server.RegisterService(&service, nil)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(ln)
}

// grpcProgram calls every method at the target host:port.
func grpcProgram(ctx context.Context, args []string) error {
	conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	const talk = "/lab.Talk/"
	var out text
	if err := conn.Invoke(ctx, talk+"Say", wrapperspb.String("hello"), &out); err != nil {
		return err
	}
	fmt.Println("say", out.Value)

	var trailer metadata.MD
	err = conn.Invoke(ctx, talk+"Say", wrapperspb.String("fail"), &out, grpc.Trailer(&trailer))
	fmt.Println("fail", status.Code(err), status.Convert(err).Message(), trailer.Get("why"))
	err = conn.Invoke(ctx, talk+"Missing", wrapperspb.String(""), &out)
	fmt.Println("missing", status.Code(err))

	stream, err := conn.NewStream(ctx, &service.Streams[0], talk+"Count")
	if err != nil {
		return err
	}
	stream.SendMsg(wrapperspb.String(""))
	stream.CloseSend()
	for {
		if err := stream.RecvMsg(&out); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		fmt.Println("count", out.Value)
	}
	fmt.Println("sum", stream.Trailer().Get("sum"))

	stream, err = conn.NewStream(ctx, &service.Streams[1], talk+"Chat")
	if err != nil {
		return err
	}
	for i := range 3 { // each answer comes before the next word
		if err := stream.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
			return err
		}
		if err := stream.RecvMsg(&out); err != nil {
			return err
		}
		fmt.Println("chat", out.Value)
	}
	stream.CloseSend()
	fmt.Println("chat", stream.RecvMsg(&out))

	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err = conn.NewStream(limited, &service.Streams[2], talk+"Wait")
	if err != nil {
		return err
	}
	stream.SendMsg(wrapperspb.String(""))
	stream.CloseSend()
	if err := stream.RecvMsg(&out); err != nil {
		return err
	}
	cancel()
	fmt.Println("wait", out.Value, status.Code(stream.RecvMsg(&out)))

	if len(args) > 1 { // a place that is refused
		denied, err := grpc.NewClient(args[1], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))
		if err != nil {
			return err
		}
		defer denied.Close()
		err = denied.Invoke(ctx, talk+"Say", wrapperspb.String("hello"), &out)
		fmt.Println("denied", status.Code(err))
	}
	return nil
}
