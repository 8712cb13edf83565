/* aclrtc, CANN's compiler as a library, as far as this crate calls it: our own declarations of a public interface.
 *
 * The same rules as for acl_abi.h. The vendor's header (acl/acl_rt_compile.h) comes with the toolkit alone.
 */
#if !defined(SAMEDRAW_ABI_NO_TYPES)

#include <stddef.h>

typedef int aclError;
typedef void *aclrtcProg;

#endif

#if !defined(SAMEDRAW_ABI_NO_CALLS)

aclError aclrtcCreateProg(
    aclrtcProg *prog, const char *src, const char *name, int numHeaders, const char **headers,
    const char **includeNames);
aclError aclrtcCompileProg(aclrtcProg prog, int numOptions, const char **options);
aclError aclrtcDestroyProg(aclrtcProg *prog);
aclError aclrtcGetBinDataSize(aclrtcProg prog, size_t *binDataSizeRet);
aclError aclrtcGetBinData(aclrtcProg prog, char *binData);
aclError aclrtcGetCompileLogSize(aclrtcProg prog, size_t *logSizeRet);
aclError aclrtcGetCompileLog(aclrtcProg prog, char *log);

#endif
