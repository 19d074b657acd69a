/* A process that says when it began, on the clock that the benchmark uses too, and then does nothing.
   worker FIFO LABEL */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct timespec now;
    char line[256];
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (argc < 3) return 2;
    int size = snprintf(line, sizeof line, "%s %d %lld\n", argv[2], (int)getpid(),
                        now.tv_sec * 1000000000LL + now.tv_nsec);
    int fifo = open(argv[1], O_WRONLY);
    if (fifo < 0 || write(fifo, line, size) != size) return 1;
    close(fifo);
    for (;;) pause();
}
