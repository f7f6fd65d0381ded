// SPDX-License-Identifier: BSD-3-Clause
// dcuda-run: starts the processes of a job on this host, connects their input and output, forwards signals, and sees to
// it that none of them, nor anything that they started, outlives the job. For several hosts it calls another launcher.
#include "launcher.hpp"
#include "several_hosts.hpp"

#include <exception>
#include <fcntl.h>
#include <iostream>
#include <unistd.h>

int main(int argc, char** argv) {
    // A descriptor of ours must not become the standard input of a process because that was closed here.
    while (fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0 || fcntl(STDERR_FILENO, F_GETFD) < 0)
        if (open("/dev/null", O_RDWR) < 0) return EXIT_FAILURE;
    try {
        launch::options chosen = launch::parse_command_line(argc, argv);
        if (chosen.needs_other_launcher()) return launch::call_launcher(chosen);
        return launch::launcher(std::move(chosen)).run();
    } catch (const launch::start_error& problem) {
        std::cerr << "dcuda-run: " << problem.what() << '\n';
        return problem.exit_code;
    } catch (const std::exception& problem) {
        std::cerr << "dcuda-run: " << problem.what() << '\n';
        return EXIT_FAILURE;
    }
}
