/* A client that asks nobody how to reach the network: it is static, knows no proxy variable, reads no resolv.conf,
 * sends its own question to a resolver it was built with, and connects by plain sockets.
 *
 *   dialler HOST PORT PATH     prints what a web server answers
 *
 * Exit: 0 answered, 2 misused, 3 no address for the name, 4 no connection, 5 nothing came.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define RESOLVER "8.8.8.8"

static int patient_socket(int kind)
{
	int fd = socket(AF_INET, kind, 0);
	struct timeval patience = { .tv_sec = 20 };

	if (fd < 0)
		exit(4);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return fd;
}

static size_t write_question(unsigned char *to, const char *name)
{
	static const unsigned char head[12] = { 0x57, 0x0c, 1, 0, 0, 1 };
	static const unsigned char tail[5] = { 0, 0, 1, 0, 1 };
	unsigned char *at = to + sizeof(head);

	memcpy(to, head, sizeof(head));
	while (*name) {
		size_t length = strcspn(name, ".");

		if (length > 63 || at - to > 200)
			exit(2);
		*at++ = (unsigned char)length;
		memcpy(at, name, length);
		at += length;
		name += length + (name[length] == '.');
	}
	memcpy(at, tail, sizeof(tail));
	return (size_t)(at - to) + sizeof(tail);
}

static struct in_addr ask(const char *name)
{
	struct sockaddr_in resolver = { .sin_family = AF_INET, .sin_port = htons(53) };
	unsigned char question[512], answer[512];
	size_t length = write_question(question, name);
	struct in_addr found;
	ssize_t got;
	int fd = patient_socket(SOCK_DGRAM);

	inet_pton(AF_INET, RESOLVER, &resolver.sin_addr);
	if (sendto(fd, question, length, 0, (struct sockaddr *)&resolver, sizeof(resolver)) < 0)
		exit(3);
	got = recv(fd, answer, sizeof(answer), 0);
	/* The question comes back first; then a compressed name, type, class, time and length stand before an address. */
	if (got < (ssize_t)length + 16 || (answer[3] & 15) != 0 || answer[7] == 0)
		exit(3);
	memcpy(&found, answer + length + 12, sizeof(found));
	close(fd);
	return found;
}

int main(int count, char **words)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	char buffer[1024];
	size_t all = 0;
	ssize_t got;
	int fd;

	if (count != 4)
		return 2;
	server.sin_port = htons((unsigned short)atoi(words[2]));
	if (inet_pton(AF_INET, words[1], &server.sin_addr) != 1)
		server.sin_addr = ask(words[1]);
	fd = patient_socket(SOCK_STREAM);
	if (connect(fd, (struct sockaddr *)&server, sizeof(server)) < 0)
		return 4;
	got = snprintf(buffer, sizeof(buffer), "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", words[3], words[1]);
	if (send(fd, buffer, (size_t)got, MSG_NOSIGNAL) != got)
		return 5;
	while (all < 1 << 20 && (got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
		all += (size_t)got;
		fwrite(buffer, 1, (size_t)got, stdout);
	}
	return all > 0 ? 0 : 5;
}
