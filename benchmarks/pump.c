/* The limit for a wrapper: runs a program on a pseudo-terminal and moves bytes between it and the terminal around it,
   with poll, read and write, and nothing else. */
#define _GNU_SOURCE
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int move(int from, int to)
{
    static char bytes[65536];
    ssize_t count = read(from, bytes, sizeof bytes);
    if (count <= 0)
        return 0;
    for (ssize_t done = 0; done < count;) {
        ssize_t written = write(to, bytes + done, count - done);
        if (written < 0)
            return 0;
        done += written;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct termios person, raw;
    struct winsize size;
    int terminal;
    if (argc < 2 || tcgetattr(0, &person) || ioctl(0, TIOCGWINSZ, &size)) {
        fputs("usage: pump PROGRAM ARGUMENTS, in a terminal\n", stderr);
        return 2;
    }
    pid_t pid = forkpty(&terminal, NULL, &person, &size);
    if (pid == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    raw = person;
    cfmakeraw(&raw);
    tcsetattr(0, TCSANOW, &raw);
    struct pollfd files[2] = {{terminal, POLLIN, 0}, {0, POLLIN, 0}};
    for (;;) {
        if (poll(files, 2, -1) < 0)
            break;
        if (files[0].revents && !move(terminal, 1))
            break;
        if (files[1].revents && !move(0, terminal))
            break;
    }
    tcsetattr(0, TCSANOW, &person);
    return 0;
}
