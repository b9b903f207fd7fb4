// relay carries one command into the guest and its output and exit status back.
//
//	relay host PARENT SECONDS NOUT OUT... NARG ARG... QEMU...
//	relay guest PORT          (process 1 of the guest)
//	relay fail PORT MESSAGE   (the guest's init gives up)
//	relay load MODULE.ko...   (insmod, many in one process)
//
// Why a program and not shell: both ends share one ordered stream, the standard input and output of qemu, which is a
// virtio-serial port in the guest. In one stream an exit frame proves that every byte of output before it has
// arrived, so nothing is lost when qemu is killed right after it, arguments and environment need no quoting, and the
// output is binary safe. The host side is also qemu's parent, so that qemu can't outlive it (PR_SET_PDEATHSIG).
//
// A frame is a type byte, a length (32 bits, this machine's order: both ends are one machine) and that many bytes.
//
//	host to guest: 'C' the command, see config(); 'S' a signal for the command
//	guest to host: 'R' the command starts; '1' '2' output; 'X' exit status, 32 bits; 'F' why it can't be run
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Statuses of the host side that are not the command's own. scripts/guest documents them.
enum { LOST = 123, TIMEOUT = 124, CANNOT = 125 };

enum { MAX_CONFIG = 8 << 20, CHUNK = 64 << 10, GRACE = 10, BOOT = 180 };

static void say(const char *format, ...)
{
	char line[1024];
	va_list args;
	va_start(args, format);
	int n = snprintf(line, sizeof line, "scripts/guest: ");
	vsnprintf(line + n, sizeof line - n - 1, format, args);
	va_end(args);
	strcat(line, "\n");
	if (write(2, line, strlen(line)) < 0) {
		// Nobody listens, nothing to do.
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// put writes all of it; -1 when the other end is gone.
static int put(int fd, const void *data, size_t n)
{
	const char *p = data;
	while (n > 0) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN) { // somebody made our output non-blocking
			struct pollfd w = {fd, POLLOUT, 0};
			poll(&w, 1, 1000);
			continue;
		}
		if (k < 0)
			return -1;
		p += k;
		n -= k;
	}
	return 0;
}

struct header {
	char type;
	uint32_t length;
} __attribute__((packed));

static int put_frame(int fd, char type, const void *data, uint32_t n)
{
	char frame[sizeof(struct header) + CHUNK];
	struct header h = {type, n};
	memcpy(frame, &h, sizeof h);
	memcpy(frame + sizeof h, data, n);
	return put(fd, frame, sizeof h + n);
}

// ---- host ----------------------------------------------------------------------------------------------------------

static pid_t qemu;
static volatile sig_atomic_t quit_wanted, alarmed;
static double deadline;

static void on_fatal(int sig)
{
	if (qemu > 0) {
		kill(qemu, SIGKILL);
		waitpid(qemu, NULL, 0);
	}
	_exit(128 + sig);
}

static void on_quit(int sig)
{
	(void)sig;
	quit_wanted = 1;
}

static void on_alarm(int sig)
{
	(void)sig;
	// The main loop acts on the deadline. This is for when it can't, because nobody reads our output.
	alarmed = 1;
	if (now() > deadline + GRACE + 1) {
		say("timed out, and the command's output is not being read");
		kill(qemu, SIGKILL);
		_exit(TIMEOUT);
	}
}

static void handle(int sig, void (*f)(int))
{
	struct sigaction a = {.sa_handler = f};
	sigaction(sig, &a, NULL);
}

// Variables that mean nothing or something else in the guest.
static int unsuitable(const char *variable)
{
	static const char *const prefixes[] = {"DBUS_", "DISPLAY=", "SSH_", "XDG_RUNTIME_DIR=", "XDG_SESSION", "WAYLAND_",
	                                       "LS_COLORS=", "SHLVL=", "OLDPWD=", "PWD=", "HOSTNAME=", "INVOCATION_ID=",
	                                       "JOURNAL_STREAM=", "NOTIFY_SOCKET=", "_=", NULL};
	for (int i = 0; prefixes[i]; i++)
		if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
			return 1;
	return 0;
}

// config builds the 'C' frame: counts of writable folders, arguments and variables, then the working directory, the
// folders, arguments and variables, each ended by a NUL.
static char *config(size_t *size, int nout, char **out, int narg, char **arg)
{
	char *buf, *cwd = getcwd(NULL, 0);
	FILE *f = open_memstream(&buf, size);
	uint32_t nenv = 0;
	if (!cwd)
		return NULL;
	for (char **e = environ; *e; e++)
		nenv += !unsuitable(*e);
	uint32_t counts[3] = {nout, narg, nenv};
	struct header h = {'C', 0};
	fwrite(&h, sizeof h, 1, f);
	fwrite(counts, sizeof counts, 1, f);
	fwrite(cwd, strlen(cwd) + 1, 1, f);
	for (int i = 0; i < nout; i++)
		fwrite(out[i], strlen(out[i]) + 1, 1, f);
	for (int i = 0; i < narg; i++)
		fwrite(arg[i], strlen(arg[i]) + 1, 1, f);
	for (char **e = environ; *e; e++)
		if (!unsuitable(*e))
			fwrite(*e, strlen(*e) + 1, 1, f);
	fclose(f);
	h.length = *size - sizeof h;
	memcpy(buf, &h, sizeof h);
	return h.length > MAX_CONFIG ? NULL : buf;
}

static int host(int argc, char **argv)
{
	if (argc < 4)
		return CANNOT;
	pid_t parent = atoi(argv[0]);
	int seconds = atoi(argv[1]), nout = atoi(argv[2]);
	char **out = argv + 3;
	int narg = atoi(out[nout]);
	char **arg = out + nout + 1, **command = arg + narg;

	// Killed with SIGKILL, the script can't tell us: the kernel does.
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return CANNOT;

	size_t size, sent = 0;
	char *cfg = config(&size, nout, out, narg, arg);
	if (!cfg) {
		say("can't run: no working directory, or the arguments and environment are too long");
		return CANNOT;
	}

	int in[2], back[2];
	if (pipe2(in, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) {
		say("can't run: pipe: %s", strerror(errno));
		return CANNOT;
	}
	handle(SIGINT, on_fatal);
	handle(SIGTERM, on_fatal);
	handle(SIGHUP, on_fatal);
	handle(SIGQUIT, on_quit);
	handle(SIGALRM, on_alarm);
	signal(SIGPIPE, SIG_IGN);

	pid_t self = getpid();
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old); // until `qemu` is set, so that on_fatal can't miss it
	qemu = fork();
	if (qemu == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != self)
			_exit(CANNOT);
		setpgid(0, 0); // Ctrl-C is ours to handle
		signal(SIGPIPE, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		signal(SIGQUIT, SIG_DFL);
		sigprocmask(SIG_SETMASK, &old, NULL);
		dup2(in[0], 0);
		dup2(back[1], 1);
		execvp(command[0], command);
		_exit(CANNOT);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(in[0]);
	close(back[1]);
	fcntl(in[1], F_SETFL, O_NONBLOCK);

	deadline = now() + seconds;
	double boot_by = now() + BOOT; // takes a few seconds, much longer only when it hangs
	struct itimerval every = {{1, 0}, {seconds, 0}};
	setitimer(ITIMER_REAL, &every, NULL);

	static char buf[sizeof(struct header) + CHUNK];
	size_t have = 0;
	int started = 0, asked = 0, timed_out = 0, status = -1;
	double kill_at = 0;
	while (status < 0) {
		if (!started && now() > boot_by) {
			say("can't run: the guest isn't up after %d s", BOOT);
			status = CANNOT;
			break;
		}
		if (now() > deadline && !timed_out) {
			timed_out = 1;
			say("timed out after %d s%s", seconds, started ? "" : ", before the command was started");
			if (!started)
				break;
			quit_wanted = 1; // a Go program says where it hangs
		}
		if (quit_wanted && !asked && sent == size) {
			struct {
				struct header h;
				int32_t sig;
			} __attribute__((packed)) s = {{'S', 4}, SIGQUIT};
			if (write(in[1], &s, sizeof s) < 0)
				break;
			asked = 1;
			kill_at = now() + GRACE;
		}
		if (quit_wanted && !started && !timed_out)
			on_fatal(SIGQUIT);
		if (kill_at && now() > kill_at)
			break;

		struct pollfd p[2] = {{back[0], POLLIN, 0}, {sent < size ? in[1] : -1, POLLOUT, 0}};
		if (poll(p, 2, 1000) < 0)
			continue;
		if (p[1].revents) {
			ssize_t k = write(in[1], cfg + sent, size - sent);
			if (k > 0)
				sent += k;
			else if (k < 0 && errno != EAGAIN && errno != EINTR)
				sent = size; // qemu is gone; the other pipe tells
		}
		if (!p[0].revents)
			continue;
		ssize_t k = read(back[0], buf + have, sizeof buf - have);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break; // qemu ended without an exit frame
		have += k;
		struct header h;
		size_t at = 0;
		while (status < 0 && have - at >= sizeof h) {
			memcpy(&h, buf + at, sizeof h);
			if (h.length > CHUNK) {
				say("the guest sent something that is not a frame");
				status = LOST;
				break;
			}
			if (have - at < sizeof h + h.length)
				break;
			char *data = buf + at + sizeof h;
			at += sizeof h + h.length;
			switch (h.type) {
			case 'R':
				started = 1;
				break;
			case '1':
			case '2':
				if (put(h.type - '0', data, h.length) < 0)
					status = 128 + SIGPIPE;
				break;
			case 'F':
				say("can't run: %.*s", (int)h.length, data);
				status = CANNOT;
				break;
			case 'X':
				memcpy(&status, data, 4);
				break;
			}
		}
		memmove(buf, buf + at, have - at);
		have -= at;
	}
	kill(qemu, SIGKILL);
	waitpid(qemu, NULL, 0);
	if (timed_out)
		return TIMEOUT;
	if (status >= 0)
		return status;
	if (asked)
		return 128 + SIGQUIT;
	return started ? LOST : CANNOT;
}

// ---- guest ---------------------------------------------------------------------------------------------------------

static int get(int fd, void *data, size_t n)
{
	char *p = data;
	while (n > 0) {
		ssize_t k = read(fd, p, n);
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			return -1;
		p += k;
		n -= k;
	}
	return 0;
}

static void forever(void)
{
	for (;;)
		pause(); // the host ends this machine
}

static void fail(int port, const char *format, ...)
{
	char line[1000];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	put_frame(port, 'F', line, n < (int)sizeof line ? n : (int)sizeof line - 1);
	forever();
}

static void make_dirs(char *path)
{
	for (char *s = path + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = 0;
		mkdir(path, 0755);
	}
	mkdir(path, 0755);
}

static char *next(char **p)
{
	char *s = *p;
	*p += strlen(s) + 1;
	return s;
}

// pump moves what is in a pipe to the port. 0 at the end of the pipe.
static int pump(int port, char type, int fd)
{
	static char buf[CHUNK];
	ssize_t k = read(fd, buf, sizeof buf);
	if (k < 0)
		return errno == EINTR || errno == EAGAIN;
	if (k > 0)
		put_frame(port, type, buf, k);
	return k > 0;
}

static void on_child(int sig)
{
	(void)sig;
}

static int guest(char **argv)
{
	int port = open(argv[0], O_RDWR | O_CLOEXEC);
	if (port < 0)
		return CANNOT;
	struct header h;
	uint32_t counts[3];
	if (get(port, &h, sizeof h) || h.type != 'C' || h.length > MAX_CONFIG || get(port, counts, sizeof counts))
		fail(port, "the guest got no command");
	size_t rest = h.length - sizeof counts;
	char *p = malloc(rest + 1);
	if (!p || get(port, p, rest))
		fail(port, "the guest got half a command");

	char *cwd = next(&p);
	for (uint32_t i = 0; i < counts[0]; i++) {
		char tag[16], *dir = next(&p);
		snprintf(tag, sizeof tag, "out%u", i);
		make_dirs(dir);
		// No cache: what is written is on the host when write returns.
		if (mount(tag, dir, "9p", MS_NOATIME, "trans=virtio,version=9p2000.L,msize=262144,cache=none"))
			fail(port, "mounting %s for writing: %s", dir, strerror(errno));
	}
	char **arg = calloc(counts[1] + 1, sizeof *arg);
	for (uint32_t i = 0; i < counts[1]; i++)
		arg[i] = next(&p);
	clearenv();
	for (uint32_t i = 0; i < counts[2]; i++)
		putenv(next(&p));
	setenv("PWD", cwd, 1);
	setenv("RDMARW_GUEST", "1", 1);
	setenv("RDMARW_DEVICES", "rxe0,siw0", 1);
	setenv("RDMARW_RXE0_ADDR", "10.77.0.1", 1);
	setenv("RDMARW_SIW0_ADDR", "10.78.0.1", 1);
	if (!getenv("PATH"))
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (chdir(cwd))
		fail(port, "working directory %s: %s", cwd, strerror(errno));

	// Process 1 has to collect orphans. SIGCHLD is let in only while waiting, so none is missed.
	sigset_t child, old;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &old);
	handle(SIGCHLD, on_child);

	int o[2], e[2];
	if (pipe2(o, O_CLOEXEC) || pipe2(e, O_CLOEXEC))
		fail(port, "pipe: %s", strerror(errno));
	put_frame(port, 'R', "", 0);
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		sigprocmask(SIG_SETMASK, &old, NULL);
		int null = open("/dev/null", O_RDONLY);
		dup2(null, 0);
		dup2(o[1], 1);
		dup2(e[1], 2);
		close(null);
		execvp(arg[0], arg);
		dprintf(2, "scripts/guest: %s: %s\n", arg[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	close(o[1]);
	close(e[1]);

	struct pollfd w[3] = {{o[0], POLLIN, 0}, {e[0], POLLIN, 0}, {port, POLLIN, 0}};
	struct timespec tick = {1, 0};
	int32_t status = 0;
	double ended = 0;
	while (w[0].fd >= 0 || w[1].fd >= 0 || !ended) {
		if (ended && now() > ended + GRACE)
			break; // a process that can't be killed holds a pipe
		int n = ppoll(w, 3, &tick, &old);
		int st;
		for (pid_t c; (c = waitpid(-1, &st, WNOHANG)) > 0;) {
			if (c != pid)
				continue;
			status = WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
			ended = now();
			kill(-1, SIGKILL); // what the command left behind must not hold the pipes
		}
		if (n <= 0)
			continue;
		for (int i = 0; i < 2; i++)
			if (w[i].fd >= 0 && w[i].revents && !pump(port, '1' + i, w[i].fd))
				w[i].fd = -1;
		if (w[2].revents & POLLIN) {
			int32_t sig;
			if (get(port, &h, sizeof h) == 0 && h.type == 'S' && get(port, &sig, 4) == 0 && !ended)
				kill(pid, sig);
		}
	}
	put_frame(port, 'X', &status, 4);
	forever();
	return 0;
}

static int load(char **modules)
{
	for (; *modules; modules++) {
		int fd = open(*modules, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST && errno != ENODEV)) {
			fprintf(stderr, "%s: %s\n", *modules, strerror(errno));
			return 1;
		}
		close(fd);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "host") == 0)
		return host(argc - 2, argv + 2);
	if (argc == 3 && strcmp(argv[1], "guest") == 0)
		return guest(argv + 2);
	if (argc >= 3 && strcmp(argv[1], "load") == 0)
		return load(argv + 2);
	if (argc == 4 && strcmp(argv[1], "fail") == 0) {
		int port = open(argv[2], O_RDWR);
		if (port >= 0)
			fail(port, "%s", argv[3]);
		return 1;
	}
	fprintf(stderr, "relay: see its source for usage\n");
	return 2;
}
