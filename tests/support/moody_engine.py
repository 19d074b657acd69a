"""An engine for tests that answers /health in every mood, and does its work as the file of its mood says.

`works`; `uncounted`: it works, and counts nothing; `hangs`: no completion ever comes; `busy`: as well, but its
counters grow; or a status, as `429`. The mood is read anew for every request, so a test writes into the file and
kills nobody. Standard library only. Run as a file.
"""

import socket
import sys
import threading
import time

TOKENS = {"count": 0}


def _mood(path: str) -> str:
    with open(path) as file:
        return file.read().strip()


def _answer(path: str, mood: str) -> tuple[str, str]:
    if path == "/health":
        print(f"found healthy while {mood}", flush=True)
        return "200 OK", "ok"
    if path == "/metrics":
        if mood == "uncounted":
            return "404 Not Found", ""
        if mood == "busy":
            TOKENS["count"] += 1
        print(f"told its counters while {mood}", flush=True)
        return "200 OK", f'vllm:generation_tokens_total{{engine="0"}} {TOKENS["count"]}\n'
    print(f"asked for work while {mood}", flush=True)
    if mood.isdigit():
        return f"{mood} Told So", ""
    if mood in ("hangs", "busy"):
        time.sleep(600)
    TOKENS["count"] += 1
    return "200 OK", "{}"


def _serve(connection: socket.socket, mood_file: str) -> None:
    with connection:
        data = b""
        while b"\r\n\r\n" not in data and (part := connection.recv(4096)):
            data += part
        if not data:
            return
        status, body = _answer(data.split(b" ")[1].decode(), _mood(mood_file))
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall((head + body).encode())


def main() -> None:
    port, mood_file = int(sys.argv[1]), sys.argv[2]
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(64)
    print("listening", flush=True)
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_serve, args=(connection, mood_file), daemon=True).start()


if __name__ == "__main__":
    main()
