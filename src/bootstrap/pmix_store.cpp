#include "bootstrap/rendezvous.hpp"

namespace dcuda::bootstrap {

std::unique_ptr<launcher_store> open_pmix_store(const job&, double) { return nullptr; }

} // namespace dcuda::bootstrap
