//go:build !purego && !race

#include "go_asm.h"
#include "textflag.h"

// The loops below look at four pieces at a time. A piece is two words: its address,
// and its length with the region above. Of two registers with two pieces each,
// unpacking makes one of addresses and one of the other words, both in the order
// 0, 2, 1, 3. What is wrong is gathered in bits that must stay zero, and looked at once
// in the end: nothing here depends on where it was.
//
// Where there are longer registers, the same is done with eight pieces at a time first,
// whose order is 0, 4, 1, 5, 2, 6, 3, 7. What that gathers is folded into the shorter ones.

// func writeSGEs4(dst *SGE, list *Piece, groups int, e *RegionEntry, end uint64) (total, least, bad uint64)
TEXT ·writeSGEs4(SB), NOSPLIT, $0-64
	MOVQ dst+0(FP), DI
	MOVQ list+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ e+24(FP), DX
	MOVQ end+32(FP), BX
	VPBROADCASTQ RegionEntry_Addr(DX), Y15
	VPBROADCASTQ RegionEntry_Len(DX), Y14
	VPBROADCASTD RegionEntry_ID(DX), Y13
	VPBROADCASTD RegionEntry_LKey(DX), Y12
	VPXOR Y13, Y12, Y12
	VPXOR Y11, Y11, Y11
	VPBLENDD $0x77, Y11, Y12, Y12 // what makes an lkey of the region, in each piece
	VPSLLQ $32, Y13, Y13         // the region, above the lengths
	SUBQ RegionEntry_Addr(DX), BX
	VMOVQ BX, X9                 // end of the piece before, counted from the start
	VPXOR Y8, Y8, Y8             // sum of lengths
	VPXOR Y7, Y7, Y7             // upper two bits: wrong
	VPXOR Y6, Y6, Y6             // upper halves: wrong
	VPCMPEQQ Y5, Y5, Y5          // the least of the lengths
	XORL R8, R8                  // not zero: wrong, too
	CMPB ·eightAtATime(SB), $0
	JEQ four
	MOVQ CX, R9
	SHRQ $1, R9
	JEQ four
	VPBROADCASTQ X15, Z15
	VPBROADCASTQ X14, Z14
	VPBROADCASTQ X13, Z13
	VSHUFI64X2 $0, Z12, Z12, Z12
	VPBROADCASTQ X9, Z9
	VPBROADCASTQ X5, Z5
	VMOVDQU64 before<>(SB), Z10
	KXORW K1, K1, K1

sges8:
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VPXORQ Z12, Z0, Z2
	VPXORQ Z12, Z1, Z3
	VMOVDQU64 Z2, 0(DI)
	VMOVDQU64 Z3, 64(DI)
	VPUNPCKLQDQ Z1, Z0, Z2
	VPUNPCKHQDQ Z1, Z0, Z3
	VPXORQ Z13, Z3, Z3
	VPORQ Z3, Z6, Z6
	VPMINUD Z3, Z5, Z5
	VPADDQ Z3, Z8, Z8
	VPSUBQ Z15, Z2, Z2
	VPADDQ Z3, Z2, Z4
	VPERMT2Q Z4, Z10, Z9         // ends of those before
	VPCMPEQQ Z2, Z9, K2
	KORW K2, K1, K1
	VMOVDQA64 Z4, Z9
	VPSUBQ Z4, Z14, Z4
	VPTERNLOGQ $0xfe, Z2, Z4, Z7 // or them all
	ADDQ $128, SI
	ADDQ $128, DI
	DECQ R9
	JNZ sges8

	KMOVW K1, R8
	VEXTRACTI64X4 $1, Z6, Y0
	VPOR Y0, Y6, Y6
	VEXTRACTI64X4 $1, Z7, Y0
	VPOR Y0, Y7, Y7
	VEXTRACTI64X4 $1, Z8, Y0
	VPADDQ Y0, Y8, Y8
	VEXTRACTI64X4 $1, Z5, Y0
	VPMINUD Y0, Y5, Y5
	VEXTRACTI64X4 $1, Z9, Y9
	VPERMQ $3, Y9, Y9
	ANDQ $1, CX
	JEQ done

four:
	SHLQ $6, CX
	ADDQ CX, SI
	ADDQ CX, DI
	NEGQ CX

sges:
	VMOVDQU 0(SI)(CX*1), Y0
	VMOVDQU 32(SI)(CX*1), Y1
	VPXOR Y12, Y0, Y2
	VPXOR Y12, Y1, Y3
	VMOVDQU Y2, 0(DI)(CX*1)
	VMOVDQU Y3, 32(DI)(CX*1)
	VPUNPCKLQDQ Y1, Y0, Y2       // addresses
	VPUNPCKHQDQ Y1, Y0, Y3
	VPXOR Y13, Y3, Y3            // lengths, if the region is right
	VPOR Y3, Y6, Y6
	VPMINUD Y3, Y5, Y5
	VPADDQ Y3, Y8, Y8
	VPSUBQ Y15, Y2, Y2           // from the start: huge below
	VPADDQ Y3, Y2, Y4            // ends
	VPERMQ $0x4b, Y4, Y0         // in the order 3, 1, 0, 2
	VPBLENDD $3, Y9, Y0, Y1      // those before 0, 2, 1, 3
	VMOVDQA Y0, Y9
	VPCMPEQQ Y2, Y1, Y1          // it goes on where the one before ended
	VPSUBQ Y4, Y14, Y4           // what is left behind them: negative past the end
	VPOR Y2, Y4, Y4
	VPOR Y1, Y4, Y4
	VPOR Y4, Y7, Y7              // once, since each waits for the one before
	ADDQ $64, CX
	JNZ sges

done:
	VPSRLQ $32, Y6, Y6
	VPSRLQ $62, Y7, Y7
	VPOR Y6, Y7, Y7
	VEXTRACTI128 $1, Y7, X0
	VPOR X0, X7, X7
	VPSRLDQ $8, X7, X0
	VPOR X0, X7, X7
	VMOVQ X7, AX
	ORQ R8, AX
	VEXTRACTI128 $1, Y8, X0
	VPADDQ X0, X8, X8
	VPSRLDQ $8, X8, X0
	VPADDQ X0, X8, X8
	VMOVQ X8, BX
	VEXTRACTI128 $1, Y5, X0
	VPMINUD X0, X5, X5
	VPSRLDQ $8, X5, X0
	VPMINUD X0, X5, X5
	VMOVD X5, CX
	VZEROUPPER
	MOVQ BX, total+40(FP)
	MOVQ CX, least+48(FP)
	MOVQ AX, bad+56(FP)
	RET

// before says where the piece before each is, in the order of eight: of the eight before
// (which end in 7), or of these (counted from 8).
DATA before<>+0(SB)/8, $7
DATA before<>+8(SB)/8, $14
DATA before<>+16(SB)/8, $8
DATA before<>+24(SB)/8, $9
DATA before<>+32(SB)/8, $10
DATA before<>+40(SB)/8, $11
DATA before<>+48(SB)/8, $12
DATA before<>+56(SB)/8, $13
GLOBL before<>(SB), RODATA|NOPTR, $64

// func checkPages4(list *Piece, groups int, first, last, word, inPage uint64) (bad uint64)
TEXT ·checkPages4(SB), NOSPLIT, $0-56
	MOVQ list+0(FP), SI
	MOVQ groups+8(FP), CX
	VPBROADCASTQ first+16(FP), Y15
	VPBROADCASTQ last+24(FP), Y14
	VPBROADCASTQ word+32(FP), Y13
	VPXOR Y7, Y7, Y7             // sign bits: wrong
	VPXOR Y6, Y6, Y6             // any bit: wrong
	VPXOR Y5, Y5, Y5             // offsets: those in a page are wrong, and sign bits
	CMPB ·eightAtATime(SB), $0
	JEQ four
	MOVQ CX, R9
	SHRQ $1, R9
	JEQ four
	VPBROADCASTQ X15, Z15
	VPBROADCASTQ X14, Z14
	VPBROADCASTQ X13, Z13

pages8:
	VMOVDQU64 0(SI), Z0
	VPUNPCKLQDQ 64(SI), Z0, Z2
	VPUNPCKHQDQ 64(SI), Z0, Z3
	VPTERNLOGQ $0xf6, Z13, Z3, Z6 // or what differs
	VPSUBQ Z15, Z2, Z2
	VPORQ Z2, Z5, Z5
	VPSUBQ Z2, Z14, Z3
	VPORQ Z3, Z7, Z7
	ADDQ $128, SI
	DECQ R9
	JNZ pages8

	VEXTRACTI64X4 $1, Z5, Y0
	VPOR Y0, Y5, Y5
	VEXTRACTI64X4 $1, Z6, Y0
	VPOR Y0, Y6, Y6
	VEXTRACTI64X4 $1, Z7, Y0
	VPOR Y0, Y7, Y7
	ANDQ $1, CX
	JEQ done

four:
	SHLQ $6, CX
	ADDQ CX, SI
	NEGQ CX

pages:
	VMOVDQU 0(SI)(CX*1), Y0
	VPUNPCKLQDQ 32(SI)(CX*1), Y0, Y2 // addresses
	VPUNPCKHQDQ 32(SI)(CX*1), Y0, Y3
	VPXOR Y13, Y3, Y3
	VPOR Y3, Y6, Y6
	VPSUBQ Y15, Y2, Y2           // from the first page: negative below
	VPOR Y2, Y5, Y5
	VPSUBQ Y2, Y14, Y3           // to the last: negative behind
	VPOR Y3, Y7, Y7
	ADDQ $64, CX
	JNZ pages

done:
	VPOR Y5, Y7, Y7
	VPSRLQ $63, Y7, Y7
	VPOR Y7, Y6, Y6
	VPBROADCASTQ inPage+40(FP), Y4
	VPAND Y4, Y5, Y5
	VPOR Y5, Y6, Y6
	VEXTRACTI128 $1, Y6, X0
	VPOR X0, X6, X6
	VPSRLDQ $8, X6, X0
	VPOR X0, X6, X6
	VMOVQ X6, AX
	VZEROUPPER
	MOVQ AX, bad+48(FP)
	RET

// even is where the addresses are in a list of eight.
DATA even<>+0(SB)/8, $0
DATA even<>+8(SB)/8, $2
DATA even<>+16(SB)/8, $4
DATA even<>+24(SB)/8, $6
DATA even<>+32(SB)/8, $8
DATA even<>+40(SB)/8, $10
DATA even<>+48(SB)/8, $12
DATA even<>+56(SB)/8, $14
GLOBL even<>(SB), RODATA|NOPTR, $64

// func writePages4(pages *uint64, list *Piece, groups int, page uint64) (bad uint64)
TEXT ·writePages4(SB), NOSPLIT, $0-40
	MOVQ pages+0(FP), DI
	MOVQ list+8(FP), SI
	MOVQ groups+16(FP), CX
	VPBROADCASTQ page+24(FP), Y13
	VPCMPEQQ Y10, Y10, Y10
	VPADDQ Y10, Y13, Y12         // an address in a page
	VPXOR Y6, Y6, Y6             // lower halves: wrong
	VPXOR Y5, Y5, Y5             // addresses
	CMPB ·eightAtATime(SB), $0
	JEQ four
	MOVQ CX, R9
	SHRQ $1, R9
	JEQ four
	VPBROADCASTQ X13, Z13
	VMOVDQU64 even<>(SB), Z9

fill8:
	VMOVDQU64 0(SI), Z0
	VMOVDQU64 64(SI), Z1
	VPUNPCKHQDQ Z1, Z0, Z3
	VPTERNLOGQ $0xf6, Z13, Z3, Z6 // or what differs
	VPERMT2Q Z1, Z9, Z0          // addresses in order
	VMOVDQU64 Z0, 0(DI)
	VPORQ Z0, Z5, Z5
	ADDQ $128, SI
	ADDQ $64, DI
	DECQ R9
	JNZ fill8

	VEXTRACTI64X4 $1, Z5, Y0
	VPOR Y0, Y5, Y5
	VEXTRACTI64X4 $1, Z6, Y0
	VPOR Y0, Y6, Y6
	ANDQ $1, CX
	JEQ done

four:
	SHLQ $5, CX
	ADDQ CX, DI
	LEAQ (SI)(CX*2), SI
	NEGQ CX

fill:
	VMOVDQU 0(SI)(CX*2), Y0
	VPUNPCKLQDQ 32(SI)(CX*2), Y0, Y2 // addresses
	VPUNPCKHQDQ 32(SI)(CX*2), Y0, Y3
	VPERMQ $0xd8, Y2, Y4         // in order
	VMOVDQU Y4, 0(DI)(CX*1)
	VPXOR Y13, Y3, Y3
	VPOR Y3, Y6, Y6
	VPOR Y2, Y5, Y5
	ADDQ $32, CX
	JNZ fill

done:
	VPAND Y12, Y5, Y5
	VPSLLQ $32, Y6, Y6
	VPOR Y5, Y6, Y6
	VEXTRACTI128 $1, Y6, X0
	VPOR X0, X6, X6
	VPSRLDQ $8, X6, X0
	VPOR X0, X6, X6
	VMOVQ X6, AX
	VZEROUPPER
	MOVQ AX, bad+32(FP)
	RET
