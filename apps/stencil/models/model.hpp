// Other ways to run the iterations, to compare dCUDA with: --model. docs/guide/stencil.md says what each does.
#pragma once

#include <memory>
#include <string>

#include "division.hpp"
#include "options.hpp"

namespace stencil {

// What a model works on: this device's part.
struct setting {
    const options& chosen;
    grid whole;
    division ranks;
    int device = 0;
    int threads = 0;      // of a block
    double* in = nullptr; // the device's rows, and room for one more on either side, in device memory

    range mine() const { return ranks.rows.of_device(device); }
};

class model {
public:
    virtual ~model() = default;

    // Diffuses the device's rows of `in`. Collective. Milliseconds that the iterations took, of the slowest device.
    virtual double run() = 0;

    // Runs the same exchanges without the kernels. Collective. Milliseconds; 0 if nothing is exchanged, or if the model
    // has no exchanges apart from its kernels.
    virtual double exchange_alone() = 0;

    // What carries the rows, in words.
    virtual std::string describe() const = 0;
};

// A model of that name, for programs that have this object. Each library has its own program, so that `stencil` needs
// none of them: start_program.
using model_maker = std::unique_ptr<model> (*)(const setting&);
struct registered_model {
    registered_model(const char* name, model_maker make);
};

// Throws std::runtime_error with the reason if this program cannot have it.
std::unique_ptr<model> make_model(const std::string& name, const setting& with);

// If a program beside this one has the model that the command line asks for, and this one has not, it takes this one's
// place. Else nothing happens.
void start_program_of_model(int argc, char** argv);

} // namespace stencil
