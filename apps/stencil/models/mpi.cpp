// MPI between kernels: rows straight from device memory where the MPI library takes that, else through pinned memory.
#include <array>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "models/two_model.hpp"
#include "support/cuda.hpp"

namespace stencil {

namespace {

void check(int code, const char* what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw std::runtime_error(std::string("MPI: ") + what + ": " + text.data());
}

bool takes_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false; // the library does not tell
#endif
}

// MPI ends with the process, for dCUDA may use it too; but not after a failure: MPI_Finalize would wait for the others.
bool all_in_order = false;
void finalize() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized == 0 && all_in_order) MPI_Finalize();
}

class mpi_carrier final : public carrier {
public:
    mpi_carrier(const device_arrays& arrays, processes& all) : arrays_(arrays) {
        int is_initialized = 0, rank = 0, size = 0;
        MPI_Initialized(&is_initialized);
        if (is_initialized == 0) {
            int level = 0;
            check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
            std::atexit(finalize);
        }
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (rank != all.index() || size != all.count())
            throw std::runtime_error("the model mpi needs processes that MPI's launcher has started: mpirun -n " +
                                     std::to_string(all.count()) + " stencil --model mpi");
        check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
        check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        is_direct_ = takes_device_memory();
        if (is_direct_) return;
        place_bytes_ = arrays.rows_of(0, true, true).bytes;
        pinned_ = dcuda::cuda::allocate_pinned<std::byte>(places * place_bytes_, "pinning memory");
    }
    ~mpi_carrier() override { all_in_order = std::uncaught_exceptions() == 0; }

    std::string name() const override {
        std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
        int length = 0;
        MPI_Get_library_version(text.data(), &length);
        std::string version(text.data(), static_cast<std::size_t>(length));
        version.resize(std::min(version.find_first_of(",\n"), version.size()));
        return version + (is_direct_ ? ", from device memory" : ", through pinned memory");
    }

    void bring(const exchange& rows, cudaStream_t stream) override {
        // Places for what comes take turns: the last exchange's are still being copied to the device.
        turn_ = 1 - turn_;
        if (!is_direct_) {
            receive(rows);
            for (int border = 0; border < 2; ++border)
                copy(place(border, outgoing), rows.borders[border].out, rows.bytes, stream);
        }
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        if (is_direct_) receive(rows); // not before: kernels may have been reading what was there
        for (int border = 0; border < 2; ++border) {
            const void* const source =
                is_direct_ ? rows.borders[border].out : static_cast<void*>(place(border, outgoing));
            if (rows.borders[border].out)
                check(MPI_Isend(source, static_cast<int>(rows.bytes), MPI_BYTE, arrays_.neighbour(border), border,
                                communicator_, &next_request()),
                      "MPI_Isend");
        }
        check(MPI_Waitall(requests_, open_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
        requests_ = 0;
        if (is_direct_) return;
        for (int border = 0; border < 2; ++border)
            copy(rows.borders[border].in, place(border, turn_), rows.bytes, stream);
    }

private:
    static constexpr int outgoing = 2; // beside the two turns of what comes
    static constexpr std::size_t places = 6;

    std::byte* place(int border, int which) const {
        return pinned_.get() + static_cast<std::size_t>(border * 3 + which) * place_bytes_;
    }

    // A message has the number of the border that it leaves over; it comes in over the neighbour's other one.
    void receive(const exchange& rows) {
        for (int border = 0; border < 2; ++border) {
            void* const target = is_direct_ ? rows.borders[border].in : static_cast<void*>(place(border, turn_));
            if (rows.borders[border].in)
                check(MPI_Irecv(target, static_cast<int>(rows.bytes), MPI_BYTE, arrays_.neighbour(border), 1 - border,
                                communicator_, &next_request()),
                      "MPI_Irecv");
        }
    }

    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) const {
        if (target != nullptr && source != nullptr)
            common::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying border rows");
    }

    MPI_Request& next_request() { return open_[static_cast<std::size_t>(requests_++)]; }

    const device_arrays& arrays_;
    MPI_Comm communicator_ = MPI_COMM_NULL;
    bool is_direct_ = false;
    std::size_t place_bytes_ = 0;
    dcuda::cuda::pinned_array<std::byte> pinned_;
    std::array<MPI_Request, 4> open_{};
    int requests_ = 0, turn_ = 0;
};

std::unique_ptr<model> make_mpi(const setting& with) {
    return make_two_model(
        with,
        [](const device_arrays& arrays, processes& all) -> std::unique_ptr<carrier> {
            return std::make_unique<mpi_carrier>(arrays, all);
        },
        launching::one_by_one);
}

const registered_model mpi("mpi", make_mpi);

} // namespace

} // namespace stencil
