/* Leaves COUNT orphans behind, stays, and lets them all end at one moment: when the last writer of FIFO closes it.
   orphans FIFO COUNT */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char nothing;
    if (argc < 3) return 2;
    int fifo = open(argv[1], O_RDONLY);
    if (fifo < 0) return 1;
    pid_t parent = fork();
    if (parent == 0) {
        for (int left = atoi(argv[2]); left > 0; left--)
            if (fork() == 0) {
                (void)!read(fifo, &nothing, 1);
                _exit(0);
            }
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    close(fifo);
    for (;;) pause();
}
