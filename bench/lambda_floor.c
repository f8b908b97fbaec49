// The least that a custom runtime of AWS Lambda can do: one kept connection, an echo as the function, no error handling. It shows
// what the system and the Runtime API cost without us; bench/lambda_bench.py measures it beside the real one.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static char in[8 << 20], out[8 << 20];
static size_t n;

static void fill(int fd) {
  ssize_t got = read(fd, in + n, sizeof in - 1 - n);
  if (got <= 0) exit(1);
  n += (size_t)got;
  in[n] = 0;
}

// Reads a response; returns its body.
static char* response(int fd, size_t* bytes) {
  char* end;
  n = 0;
  in[0] = 0;
  while (!(end = strstr(in, "\r\n\r\n"))) fill(fd);
  const char* p = strcasestr(in, "content-length:");
  *bytes = p && p < end ? strtoul(p + 15, 0, 10) : 0;
  while (n - (size_t)(end + 4 - in) < *bytes) fill(fd);
  return end + 4;
}

static void send_all(int fd, size_t bytes) {
  if (write(fd, out, bytes) != (ssize_t)bytes) exit(1);
}

int main(void) {
  const char* api = getenv("AWS_LAMBDA_RUNTIME_API");
  char host[64];
  struct sockaddr_in a = {.sin_family = AF_INET};
  const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (!api || strlen(api) >= sizeof host || !strchr(api, ':')) return 2;
  strcpy(host, api);
  *strchr(host, ':') = 0;
  a.sin_port = htons((unsigned short)atoi(strchr(api, ':') + 1));
  inet_pton(AF_INET, host, &a.sin_addr);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, (struct sockaddr*)&a, sizeof a)) return 3;
  for (;;) {
    size_t bytes;
    int head = sprintf(out, "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: %s\r\nUser-Agent: floor\r\n\r\n", api);
    send_all(fd, (size_t)head);
    char *body = response(fd, &bytes), *id = strcasestr(in, "lambda-runtime-aws-request-id:");
    if (!id) return 4;
    id += 30 + strspn(id + 30, " ");
    head = sprintf(out,
                   "POST /2018-06-01/runtime/invocation/%.*s/response HTTP/1.1\r\nHost: %s\r\nUser-Agent: floor\r\n"
                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                   (int)strcspn(id, "\r"), id, api, bytes);
    memcpy(out + head, body, bytes);
    send_all(fd, (size_t)head + bytes);
    response(fd, &bytes);
  }
}
