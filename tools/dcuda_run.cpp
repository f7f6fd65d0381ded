// dcuda-run: starts the processes of a job on this host, connects their input and output, forwards signals, and sees to
// it that none of them, nor anything that they started, outlives the job.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using clock = std::chrono::steady_clock;

constexpr int exit_not_executable = 126, exit_not_found = 127; // as a shell has it
constexpr std::chrono::seconds term_to_kill{2};
constexpr std::chrono::milliseconds stdin_check_interval{200};
constexpr std::size_t max_line_bytes = 1 << 20, max_queued_bytes = 1 << 20;

struct options {
    int count = 0;
    int ranks = 0;
    bool prefix = false;
    std::string output_dir;
    double grace_seconds = 5;
    std::vector<std::string> environment;
    std::vector<std::string> command;
    std::string program; // the resolved path of command[0]
};

// An error that ends dcuda-run before the job runs.
struct start_error : std::runtime_error {
    start_error(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};

[[noreturn]] void fail_errno(const std::string& what, int code = EXIT_FAILURE) {
    throw start_error(code, what + ": " + std::strerror(errno));
}

// ---- what to start --------------------------------------------------------------------------------------------------

// GPUs that a process would see, without a driver library.
int visible_gpus() {
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        const std::string list = visible;
        if (list.empty() || list[0] == '-') return 0;
        return 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
    }
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
        const std::string name = entry.path().filename();
        if (name.rfind("nvidia", 0) == 0 && name.size() > 6 && name.find_first_not_of("0123456789", 6) == name.npos)
            ++count;
    }
    return count;
}

std::string find_program(const std::string& name) {
    std::vector<std::string> candidates;
    if (name.find('/') != name.npos) {
        candidates.push_back(name);
    } else {
        const char* path = std::getenv("PATH");
        std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
        for (std::string folder; std::getline(folders, folder, ':');)
            candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
    }
    bool found = false;
    for (const auto& candidate : candidates) {
        std::error_code ignored;
        if (!std::filesystem::exists(candidate, ignored)) continue;
        found = true;
        if (!std::filesystem::is_directory(candidate, ignored) && access(candidate.c_str(), X_OK) == 0)
            return candidate;
    }
    if (found) throw start_error(exit_not_executable, fmt::format("{} is not an executable file", name));
    const bool is_path = name.find('/') != name.npos;
    throw start_error(exit_not_found,
                      is_path ? fmt::format("{} does not exist", name)
                              : fmt::format("no program {} in PATH; for one in this folder write ./{}", name, name));
}

std::string random_key() {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail_errno("cannot get a random key");
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

options parse_command_line(int argc, char** argv) {
    options result;
    CLI::App app("Starts the processes of a dCUDA job on this host, one per GPU.", "dcuda-run");
    app.add_option("-n", result.count, "Number of processes (default: one per visible GPU, or 1)")
        ->check(CLI::Range(1, 65536));
    app.add_option("--ranks", result.ranks, "Ranks per device (sets DCUDA_RANKS_PER_DEVICE)")
        ->check(CLI::Range(1, 1048576));
    auto* prefix = app.add_flag("--prefix", result.prefix, "Put the process index before each line of output");
    app.add_option("--output-dir", result.output_dir, "Write the output of process 3 to DIR/3.out and DIR/3.err")
        ->excludes(prefix);
    app.add_option("--grace", result.grace_seconds,
                   "Seconds that the others have to end by themselves after one failed (default 5)")
        ->check(CLI::Range(0.0, 1e6));
    app.add_option("--env", result.environment, "Set a variable, NAME=VALUE; may be repeated")
        ->allow_extra_args(false) // one value each time
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.prefix_command();
    app.footer("Then the program and its arguments, after -- if you like. The exit code is 0 if all processes end\n"
               "with 0, else that of the first that failed (128 + signal if a signal killed it).");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        std::exit(app.exit(problem) == 0 ? 0 : 2);
    }
    result.command = app.remaining();
    if (!result.command.empty() && result.command[0] == "--") result.command.erase(result.command.begin());
    if (result.command.empty()) throw start_error(2, "no program given; see dcuda-run --help");
    for (const auto& variable : result.environment)
        if (variable.find('=') == variable.npos || variable[0] == '=')
            throw start_error(2, fmt::format("--env {}: expected NAME=VALUE", variable));
    if (result.count == 0) result.count = std::max(1, visible_gpus());
    result.program = find_program(result.command[0]);
    return result;
}

// ---- output ---------------------------------------------------------------------------------------------------------

// Writes to a file descriptor of our own only when it takes something, so that a slow reader never blocks the launcher.
class sink {
public:
    explicit sink(int fd) : fd_(fd) {}
    void add(std::string_view text) {
        if (!broken_) queue_.append(text);
    }
    void write_some() {
        // Up to PIPE_BUF bytes go into a pipe that polls as writable without blocking.
        const ssize_t wrote =
            write(fd_, queue_.data() + written_, std::min<std::size_t>(queue_.size() - written_, PIPE_BUF));
        if (wrote > 0) written_ += static_cast<std::size_t>(wrote);
        if (wrote < 0 && errno != EAGAIN && errno != EINTR) broken_ = true;
        if (broken_ || written_ == queue_.size()) queue_.clear(), written_ = 0;
    }
    int fd() const { return fd_; }
    bool empty() const { return queue_.empty(); }
    bool full() const { return queue_.size() > max_queued_bytes; }
    bool broken() const { return broken_; }

private:
    int fd_;
    std::string queue_;
    std::size_t written_ = 0; // of the queue
    bool broken_ = false;
};

// One output stream of one process: whole lines go to a sink, with a prefix.
class line_reader {
public:
    line_reader(int fd, std::string prefix, sink& out) : fd_(fd), prefix_(std::move(prefix)), out_(&out) {}

    void read_some() {
        char buffer[65536];
        const ssize_t got = read(fd_, buffer, sizeof buffer);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (got > 0) line_.append(buffer, static_cast<std::size_t>(got));
        std::size_t begin = 0;
        for (std::size_t end; (end = line_.find('\n', begin)) != line_.npos; begin = end + 1) emit(begin, end);
        line_.erase(0, begin);
        if (line_.size() > max_line_bytes || (got <= 0 && !line_.empty())) {
            emit(0, line_.size());
            line_.clear();
        }
        // If nobody reads our output, the program shall find out as it would without us.
        if (got <= 0 || out_->broken()) close(std::exchange(fd_, -1));
    }
    int fd() const { return fd_; }
    bool may_read() const { return fd_ >= 0 && !out_->full(); }

private:
    void emit(std::size_t begin, std::size_t end) {
        out_->add(prefix_);
        out_->add(std::string_view(line_).substr(begin, end - begin));
        out_->add("\n");
    }

    int fd_;
    std::string prefix_;
    sink* out_;
    std::string line_;
};

// ---- the job --------------------------------------------------------------------------------------------------------

struct process {
    pid_t pid = 0;
    bool running = false;
};

// All processes whose ancestor is this one. Orphans among them are our children, because we are a subreaper.
std::vector<pid_t> descendants(pid_t except) {
    std::vector<std::pair<pid_t, pid_t>> parents; // (process, its parent)
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != name.npos) continue;
        std::ifstream file(entry.path() / "stat");
        std::string text;
        std::getline(file, text);
        pid_t parent = 0;
        char state = 0;
        const auto end_of_name = text.rfind(')');
        if (end_of_name == text.npos || std::sscanf(text.c_str() + end_of_name + 1, " %c %d", &state, &parent) != 2)
            continue;
        if (state != 'Z' && state != 'X') parents.emplace_back(std::stoi(name), parent);
    }
    std::vector<pid_t> found{getpid()};
    for (std::size_t i = 0; i < found.size(); ++i)
        for (auto [pid, parent] : parents)
            if (parent == found[i] && pid != except) found.push_back(pid);
    found.erase(found.begin());
    return found;
}

class launcher {
public:
    explicit launcher(options settings) : options_(std::move(settings)) {}

    int run() {
        block_signals();
        if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_errno("cannot become the reaper of orphans");
        if (!options_.output_dir.empty()) {
            std::filesystem::create_directories(options_.output_dir);
            if (access(options_.output_dir.c_str(), W_OK | X_OK) != 0) fail_errno(options_.output_dir);
        }
        start_guard();
        try {
            for (int i = 0; i < options_.count; ++i) start(i);
        } catch (...) {
            end_everything();
            throw;
        }
        while (running_ > 0) step();
        kill_descendants();
        // What they wrote last; their pipes end now. A signal ends this, too, if nobody takes our output.
        while (has_output() && !quit_) step();
        end_everything();
        return exit_code_;
    }

private:
    void block_signals() {
        sigset_t handled;
        sigemptyset(&handled);
        for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP})
            sigaddset(&handled, signal);
        sigprocmask(SIG_BLOCK, &handled, &mask_at_start_);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGTTIN, SIG_IGN);
        signal(SIGCHLD, SIG_DFL); // may be ignored by who started us, and then there is nothing to wait for
        signals_ = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
        if (signals_ < 0) fail_errno("cannot create a signalfd");
    }

    // A process that survives this one, also when it is killed, and then kills the groups of all processes of the job.
    // The parent-death signal of each process reaches only that process, not what it started.
    void start_guard() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot create a pipe");
        guard_ = fork();
        if (guard_ < 0) fail_errno("cannot start a process");
        if (guard_ != 0) {
            close(ends[0]);
            guard_pipe_ = ends[1];
            return;
        }
        setsid();
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        // Who waits for the end of our output, or of another pipe that we inherited, shall not wait for the guard.
        dup2(ends[0], 0);
        close_range(1, ~0U, 0);
        std::vector<pid_t> groups;
        for (pid_t group; read(0, &group, sizeof group) == sizeof group;) groups.push_back(group);
        for (pid_t group : groups) kill(-group, SIGKILL);
        _exit(0);
    }

    void start(int index) {
        int out[2] = {-1, -1}, err[2] = {-1, -1}, in[2] = {-1, -1}, failure[2];
        if (pipe2(failure, O_CLOEXEC) != 0) fail_errno("cannot create a pipe");
        if (options_.prefix && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0))
            fail_errno("cannot create a pipe");
        // A terminal lets only its foreground group read, and that is ours: we read for process 0.
        const bool relay = index == 0 && isatty(STDIN_FILENO);
        if (relay && pipe2(in, O_CLOEXEC) != 0) fail_errno("cannot create a pipe");

        const pid_t launcher_pid = getpid();
        const pid_t pid = fork();
        if (pid < 0) fail_errno(fmt::format("cannot start process {}", index));
        if (pid == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != launcher_pid) _exit(EXIT_FAILURE); // it died before the line above
            become(index, in[0], out[1], err[1], failure[1]);
        }
        setpgid(pid, pid); // both sides do it, whoever comes first
        for (int fd : {in[0], out[1], err[1], failure[1]})
            if (fd >= 0) close(fd);
        if (options_.prefix) {
            readers_.emplace_back(out[0], fmt::format("[{}] ", index), stdout_);
            readers_.emplace_back(err[0], fmt::format("[{}] ", index), stderr_);
        }
        if (relay) {
            stdin_pipe_ = in[1];
            fcntl(stdin_pipe_, F_SETFL, O_NONBLOCK);
        }
        processes_.push_back({pid, true});
        ++running_;
        [[maybe_unused]] const auto told = write(guard_pipe_, &pid, sizeof pid);
        int problem = 0;
        const bool failed = read(failure[0], &problem, sizeof problem) == sizeof problem;
        close(failure[0]);
        if (failed)
            throw start_error(problem == ENOENT ? exit_not_found : exit_not_executable,
                              fmt::format("cannot start {}: {}", options_.program, std::strerror(problem)));
    }

    // In the new process: does not return.
    [[noreturn]] void become(int index, int in, int out, int err, int failure) {
        auto redirect = [&](int from, int to) {
            if (from >= 0 && dup2(from, to) >= 0) return;
            [[maybe_unused]] const auto told = write(failure, &errno, sizeof errno);
            _exit(exit_not_executable);
        };
        auto open_file = [&](const char* suffix) {
            const std::string path = fmt::format("{}/{}.{}", options_.output_dir, index, suffix);
            return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        };
        if (in >= 0) redirect(in, STDIN_FILENO);
        if (index > 0) redirect(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
        if (out >= 0) redirect(out, STDOUT_FILENO), redirect(err, STDERR_FILENO);
        if (!options_.output_dir.empty())
            redirect(open_file("out"), STDOUT_FILENO), redirect(open_file("err"), STDERR_FILENO);

        auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
        set("DCUDA_PROCESS_INDEX", std::to_string(index));
        set("DCUDA_LOCAL_INDEX", std::to_string(index));
        set("DCUDA_PROCESS_COUNT", std::to_string(options_.count));
        set("DCUDA_LOCAL_COUNT", std::to_string(options_.count));
        set("DCUDA_JOB", key_);
        if (options_.ranks > 0) set("DCUDA_RANKS_PER_DEVICE", std::to_string(options_.ranks));
        for (const auto& variable : options_.environment) {
            const auto equal = variable.find('=');
            set(variable.substr(0, equal).c_str(), variable.substr(equal + 1));
        }
        std::vector<char*> arguments;
        for (auto& argument : options_.command) arguments.push_back(argument.data());
        arguments.push_back(nullptr);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGTTIN, SIG_DFL);
        sigprocmask(SIG_SETMASK, &mask_at_start_, nullptr);
        execv(options_.program.c_str(), arguments.data());
        [[maybe_unused]] const auto told = write(failure, &errno, sizeof errno);
        _exit(exit_not_executable);
    }

    // Waits for something to happen, and handles it.
    void step() {
        std::vector<pollfd> polled{{signals_, POLLIN, 0}};
        for (const sink* each : {&stdout_, &stderr_}) polled.push_back({each->empty() ? -1 : each->fd(), POLLOUT, 0});
        const bool foreground = stdin_pipe_ >= 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
        polled.push_back({foreground && stdin_data_.empty() ? STDIN_FILENO : -1, POLLIN, 0});
        polled.push_back({stdin_pipe_, static_cast<short>(stdin_data_.empty() ? 0 : POLLOUT), 0});
        const std::size_t first_reader = polled.size();
        for (const auto& each : readers_) polled.push_back({each.may_read() ? each.fd() : -1, POLLIN, 0});

        if (poll(polled.data(), polled.size(), poll_timeout_ms()) < 0 && errno != EINTR) fail_errno("poll");
        for (std::size_t i = first_reader; i < polled.size(); ++i)
            if (polled[i].revents != 0) readers_[i - first_reader].read_some();
        if (polled[1].revents != 0) stdout_.write_some();
        if (polled[2].revents != 0) stderr_.write_some();
        if (polled[3].revents != 0) read_stdin();
        if (polled[4].revents & POLLERR)
            close(std::exchange(stdin_pipe_, -1)), stdin_data_.clear(); // process 0 reads no more
        else if (polled[4].revents != 0)
            write_stdin();
        if (polled[0].revents != 0) handle_signals();
        escalate();
    }

    int poll_timeout_ms() const {
        auto wait = std::chrono::milliseconds(-1);
        if (stdin_pipe_ >= 0) wait = stdin_check_interval; // we may come to the foreground
        if (deadline_) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - clock::now());
            const auto positive = std::max(left, std::chrono::milliseconds(0));
            wait = wait.count() < 0 ? positive : std::min(wait, positive);
        }
        return static_cast<int>(std::min<long>(wait.count(), 60'000));
    }

    void read_stdin() {
        char buffer[4096];
        const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
        if (got > 0) stdin_data_.assign(buffer, static_cast<std::size_t>(got));
        if (got == 0) close(std::exchange(stdin_pipe_, -1));
    }

    void write_stdin() {
        const ssize_t written = write(stdin_pipe_, stdin_data_.data(), stdin_data_.size());
        if (written > 0) stdin_data_.erase(0, static_cast<std::size_t>(written));
        if (written < 0 && errno != EAGAIN) close(std::exchange(stdin_pipe_, -1)), stdin_data_.clear();
    }

    void handle_signals() {
        signalfd_siginfo info;
        while (read(signals_, &info, sizeof info) == sizeof info) {
            const int signal = static_cast<int>(info.ssi_signo);
            if (signal == SIGCHLD) {
                reap();
            } else if (signal == SIGINT && interrupted_) {
                signal_all(SIGKILL);
            } else {
                interrupted_ |= signal == SIGINT;
                signal_all(signal);
                if (signal == SIGTSTP) raise(SIGSTOP);
                if (running_ == 0 && (signal == SIGINT || signal == SIGTERM)) quit_ = true;
            }
        }
    }

    void signal_all(int signal) {
        for (const process& each : processes_)
            if (each.running) kill(-each.pid, signal);
    }

    void reap() {
        int status = 0;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            for (std::size_t i = 0; i < processes_.size(); ++i)
                if (processes_[i].pid == pid && processes_[i].running) ended(i, status);
    }

    void ended(std::size_t index, int status) {
        processes_[index].running = false;
        --running_;
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code == 0 || exit_code_ != 0) return;
        exit_code_ = code;
        char host[256] = "?";
        gethostname(host, sizeof host - 1);
        std::string how = fmt::format("exited with code {}", code);
        if (WIFSIGNALED(status)) {
            const char* name = sigabbrev_np(WTERMSIG(status));
            how = fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                              name ? fmt::format("SIG{}", name) : std::string("real-time"));
        }
        say(fmt::format("process {} (pid {}, host {}) {}", index, processes_[index].pid, host, how));
        deadline_ = clock::now() + std::chrono::milliseconds(static_cast<long>(options_.grace_seconds * 1000));
    }

    // After a failure: grace, then SIGTERM, then SIGKILL.
    void escalate() {
        if (!deadline_ || clock::now() < *deadline_ || running_ == 0) {
            if (running_ == 0) deadline_.reset();
            return;
        }
        if (terminated_) {
            signal_all(SIGKILL);
            deadline_.reset();
            return;
        }
        terminated_ = true;
        say(fmt::format("{} other process{} did not end within {} s after that; ending {}", running_,
                        running_ == 1 ? "" : "es", options_.grace_seconds, running_ == 1 ? "it" : "them"));
        signal_all(SIGTERM);
        signal_all(SIGCONT); // a stopped process would not notice
        deadline_ = clock::now() + term_to_kill;
    }

    void say(const std::string& text) { stderr_.add("dcuda-run: " + text + "\n"); }

    bool has_output() const {
        return !stdout_.empty() || !stderr_.empty() ||
               std::any_of(readers_.begin(), readers_.end(), [](const auto& each) { return each.fd() >= 0; });
    }

    // Children of the processes, and theirs. Repeated, since one of them may start another just now.
    void kill_descendants() {
        for (int round = 0; round < 1000; ++round) {
            const auto left = descendants(guard_);
            if (left.empty()) return;
            for (pid_t pid : left) kill(pid, SIGKILL);
            poll(nullptr, 0, 2);
            reap();
        }
    }

    void end_everything() {
        signal_all(SIGKILL);
        kill_descendants();
        if (guard_ > 0) {
            kill(guard_, SIGKILL);
            waitpid(guard_, nullptr, 0);
        }
    }

    options options_;
    const std::string key_ = random_key();
    sigset_t mask_at_start_{};
    int signals_ = -1;
    pid_t guard_ = 0;
    int guard_pipe_ = -1;
    std::vector<process> processes_; // by index
    int running_ = 0;
    int exit_code_ = 0;
    bool interrupted_ = false; // by a first SIGINT
    bool terminated_ = false;  // the others got SIGTERM
    bool quit_ = false;
    std::optional<clock::time_point> deadline_; // of the next step against the others
    sink stdout_{STDOUT_FILENO}, stderr_{STDERR_FILENO};
    std::vector<line_reader> readers_;
    int stdin_pipe_ = -1; // to process 0, if our input is a terminal
    std::string stdin_data_;
};

} // namespace

int main(int argc, char** argv) {
    try {
        return launcher(parse_command_line(argc, argv)).run();
    } catch (const start_error& problem) {
        std::cerr << "dcuda-run: " << problem.what() << '\n';
        return problem.exit_code;
    } catch (const std::exception& problem) {
        std::cerr << "dcuda-run: " << problem.what() << '\n';
        return EXIT_FAILURE;
    }
}
