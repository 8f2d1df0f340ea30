import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
c = socket.create_connection(s.getsockname()); a, _ = s.accept()
c.send(b"hello"); print(a.recv(10), socket.gethostname(), sorted(n for _, n in socket.if_nameindex()))
